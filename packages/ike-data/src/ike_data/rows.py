"""Files to records, each with the place it comes from; a row that can't be read is a Skip that says why."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from ike_core.errors import DataError
from ike_core.examples import Skip
from ike_core.interfaces import Record
from ike_data.sources.arrow import arrow_rows
from ike_data.sources.delimited import csv_rows, tsv_rows
from ike_data.sources.formats import Format
from ike_data.sources.json_rows import json_lines_rows, json_rows
from ike_data.sources.parquet import parquet_rows
from ike_data.sources.paths import SourceFile, find_files
from ike_data.sources.row import Row
from ike_data.sources.text import text_rows

__all__ = ["Row", "read_records", "read_rows"]

_READERS: Mapping[Format, Callable[[SourceFile], Iterator[Row]]] = {
    Format.JSON_LINES: json_lines_rows,
    Format.JSON: json_rows,
    Format.CSV: csv_rows,
    Format.TSV: tsv_rows,
    Format.PARQUET: parquet_rows,
    Format.ARROW: arrow_rows,
    Format.TEXT: text_rows,
}


def read_rows(files: Sequence[str], *, limit: int = 0) -> Iterator[Row]:
    """Rows of the files in order; `limit` is of rows, 0: all. Paths, folders, globs, `hf://owner/name:split`.

    No more of a file is held than one row and a piece around it. DataError where a file can't be read on, with the line
    or row: what could be read before it has been given.
    """
    rows = (row for file in find_files(files) for row in _rows(file))
    return islice(rows, limit or None)


def read_records(files: Sequence[str], *, limit: int = 0) -> Iterator[tuple[str, Record]]:
    """(source, record) in order, for whoever answers every row: all rows are read once before the first is given.

    DataError names the rows that can't be read, so that no answer is lost to a broken line hours later.
    """
    bad = [f"{source}: {row.reason}" for source, row in read_rows(files, limit=limit) if isinstance(row, Skip)]
    if bad:
        more = f"\n  and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise DataError("\n  ".join([f"{len(bad)} rows can't be read; mend or remove them:", *bad[:5]]) + more)
    for source, row in read_rows(files, limit=limit):
        if isinstance(row, Skip):
            raise DataError(f"{source}: {row.reason} (the file changed while it was read)")
        yield source, row


def _rows(file: SourceFile) -> Iterator[Row]:
    reader = _READERS.get(file.format)
    if reader is None:
        raise DataError(f"{file.path}: {file.format} holds tokens, not rows: no processor reads it")
    return reader(file)
