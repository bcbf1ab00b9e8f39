"""Rows of Parquet, some at a time, whatever the size of its row groups."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ike_core.errors import DataError
from ike_data.sources.arrow_values import batch_rows, readable_schema
from ike_data.sources.compressed import whole_file
from ike_data.sources.first_bytes import ENOUGH, PARQUET, refuse_unknown
from ike_data.sources.formats import Format
from ike_data.sources.paths import SourceFile
from ike_data.sources.row import Row

_BATCH_ROWS = 256
_BUFFER = 1 << 20
"""Bytes of a column read ahead; 0 would read the columns of a row group whole."""
_FAULTS = (pa.ArrowException, OSError, ValueError)


def parquet_rows(file: SourceFile) -> Iterator[Row]:
    """Rows named by their place, from 1. DataError with the row from which on a damaged file can't be read."""
    row = 0
    with whole_file(file) as path:
        _check_ends(file, path)
        try:
            with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True) as table:
                schema = readable_schema(file.name, table.schema_arrow)
                for batch in table.iter_batches(_BATCH_ROWS, use_threads=False):
                    yield from batch_rows(file.name, batch, schema, first=row + 1)
                    row += batch.num_rows
                rows = table.metadata.num_rows
        except _FAULTS as error:
            raise DataError(f"{file.name}:{row + 1}: can't be read from this row on: {error}") from error
    if row != rows:
        raise DataError(f"{file.name}: it says that it has {rows} rows, and {row} can be read: the file is damaged")


def _check_ends(file: SourceFile, path: Path) -> None:
    try:
        with path.open("rb") as raw:
            start = raw.read(ENOUGH)
            raw.seek(-min(4, len(start)), 2)
            end = raw.read()
    except OSError as error:
        raise DataError(f"{file.path}: {error.strerror}") from error
    if not start.startswith(PARQUET):
        refuse_unknown(file, start, Format.PARQUET)
    if end != PARQUET:
        raise DataError(
            f"{file.path}: a Parquet file without its end ({path.stat().st_size:,} bytes): it was cut; fetch it again"
        )
