"""Files to records, each with the place it comes from; a row that can't be read is a Skip that says why."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import orjson

from ike_core.errors import DataError
from ike_core.examples import Skip
from ike_core.interfaces import Record
from ike_data.sources.json_array import array_elements
from ike_data.sources.lines import read_lines, read_text
from ike_data.sources.paths import SourceFile, find_files

Row = tuple[str, Record | Skip]
"""(`train.jsonl:17`, the record), or in its stead why there is none."""

_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def read_rows(files: Sequence[str], *, limit: int = 0) -> Iterator[Row]:
    """Rows of JSONL and JSON files (plain or gz) in order; `limit` is of rows, 0: all. Blank lines are no rows."""
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
    lines_only = not file.path.name.lower().removesuffix(".gz").endswith(".json")
    for position, (number, line) in enumerate(read_lines(file)):
        if position == 0 and not lines_only and line.startswith(b"["):
            yield from _array_rows(file)
            return
        source = f"{file.name}:{number}"
        row = _parse(line, source)
        if position == 0 and not lines_only and isinstance(row, Skip):
            raise DataError(f"{source}: expected an array of objects or one object a line; {row.reason}")
        yield source, row


def _array_rows(file: SourceFile) -> Iterator[Row]:
    """An element is named by the line it starts on, and by its place too where several start on one."""
    last = 0
    for position, (line, text) in enumerate(array_elements(file.name, read_text(file))):
        source = f"{file.name}:{line}" if line != last else f"{file.name}:{line}[{position}]"
        last = line
        yield source, _parse(text, source)


def _parse(text: bytes | str, source: str) -> Record | Skip:
    try:
        value: Any = orjson.loads(text)  # refuses NaN, Infinity, 1e999 and lone surrogates
    except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
        return Skip(_reason(text, error), source)
    if isinstance(value, dict):
        return value
    return Skip(f"a row must be an object: this one is {_KINDS.get(type(value), 'null')}", source)


def _reason(text: bytes | str, error: ValueError) -> str:
    if isinstance(text, bytes):
        try:
            text.decode()
        except UnicodeDecodeError as broken:
            return f"not UTF-8: {broken.reason} at byte {broken.start + 1}"
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at column {error.colno}"
    return f"not valid JSON: {error}"
