"""Rows of JSON: one object a line, or one array of objects."""

import json
from collections.abc import Iterator
from typing import Any

import orjson

from ike_core.errors import DataError
from ike_core.examples import Skip
from ike_core.interfaces import Record
from ike_data.sources.formats import Format
from ike_data.sources.json_array import array_elements, starts_array
from ike_data.sources.lines import read_lines
from ike_data.sources.paths import SourceFile
from ike_data.sources.row import Row

_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def json_lines_rows(file: SourceFile) -> Iterator[Row]:
    """An object a line, named by it."""
    for number, line in read_lines(file, Format.JSON_LINES):
        source = f"{file.name}:{number}"
        yield source, _parse(line, source)


def json_rows(file: SourceFile) -> Iterator[Row]:
    """An array of objects, or an object a line. DataError where the first line is neither."""
    if starts_array(file):
        yield from _array_rows(file)
        return
    for position, (number, line) in enumerate(read_lines(file, Format.JSON)):
        source = f"{file.name}:{number}"
        row = _parse(line, source)
        if position == 0 and isinstance(row, Skip):
            raise DataError(f"{source}: expected an array of objects or one object a line; {row.reason}")
        yield source, row


def _array_rows(file: SourceFile) -> Iterator[Row]:
    """An element is named by the line it starts on, and by its place too where several start on one."""
    last = 0
    for position, (line, text) in enumerate(array_elements(file)):
        source = f"{file.name}:{line}" if line != last else f"{file.name}:{line}[{position}]"
        last = line
        yield source, _parse(text, source)


def _parse(text: bytes, source: str) -> Record | Skip:
    try:
        value: Any = orjson.loads(text)  # refuses NaN, Infinity, 1e999 and lone surrogates
    except orjson.JSONDecodeError as error:
        return Skip(_reason(text, error), source)
    if isinstance(value, dict):
        return value
    return Skip(f"a row must be an object: this one is {_KINDS.get(type(value), 'null')}", source)


def _reason(text: bytes, error: json.JSONDecodeError) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as broken:
        return f"not UTF-8: {broken.reason} at byte {broken.start + 1}"
    where = f"line {error.lineno} of it, " if error.lineno > 1 else ""
    return f"not valid JSON: {error.msg} at {where}column {error.colno}"
