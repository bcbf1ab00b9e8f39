"""Rows of Arrow's IPC format: files (Feather is one) and streams (what the datasets library keeps), told apart by their
first bytes. They are mapped: what is not compressed in them is not copied into memory."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc

from ike_core.errors import DataError
from ike_data.sources.arrow_values import batch_rows, readable_schema
from ike_data.sources.compressed import whole_file
from ike_data.sources.first_bytes import ARROW_FILE, ARROW_STREAM, ENOUGH, refuse_unknown
from ike_data.sources.formats import Format
from ike_data.sources.paths import SourceFile
from ike_data.sources.row import Row

_BATCH_ROWS = 256
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_FAULTS = (pa.ArrowException, OSError, ValueError)


def arrow_rows(file: SourceFile) -> Iterator[Row]:
    """Rows named by their place, from 1. DataError with the row from which on a damaged file can't be read."""
    row = 0
    with whole_file(file) as path:
        is_stream = _is_stream(file, path)
        try:
            with pa.memory_map(str(path)) as source:
                for batch in _stream_batches(source) if is_stream else _file_batches(source):
                    batch.validate(full=True)  # a damaged offset must not lead out of the mapping
                    schema = readable_schema(file.name, batch.schema)
                    for start in range(0, batch.num_rows, _BATCH_ROWS):
                        yield from batch_rows(file.name, batch.slice(start, _BATCH_ROWS), schema, first=row + start + 1)
                    row += batch.num_rows
        except _FAULTS as error:
            raise DataError(f"{file.name}:{row + 1}: can't be read from this row on: {error}") from error


def _file_batches(source: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    with ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _stream_batches(source: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    """Arrow takes the end of the file for the end of the stream, and so would not see that a stream was cut."""
    size = source.size()
    source.seek(max(0, size - len(_END_OF_STREAM)))
    if source.read() != _END_OF_STREAM:
        raise ValueError("the stream has no end mark: it was cut, or its writer was not closed")
    source.seek(0)
    with ipc.open_stream(source) as reader:
        yield from reader
        if source.tell() != size:
            raise ValueError(f"the stream ends at byte {source.tell():,} of {size:,}")


def _is_stream(file: SourceFile, path: Path) -> bool:
    try:
        with path.open("rb") as raw:
            start = raw.read(ENOUGH)
    except OSError as error:
        raise DataError(f"{file.path}: {error.strerror}") from error
    if start.startswith(b"FEA1"):
        raise DataError(f"{file.path}: Feather of version 1, which Arrow gave up; write it as version 2 or as Parquet")
    if not start.startswith((ARROW_FILE, ARROW_STREAM)):
        refuse_unknown(file, start, Format.ARROW)
    return start.startswith(ARROW_STREAM)
