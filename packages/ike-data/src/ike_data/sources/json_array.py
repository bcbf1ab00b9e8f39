"""The elements of a JSON array with the line each starts on; one bad element does not spoil the others."""

import json
import re
from collections.abc import Iterator

from ike_core.errors import DataError

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)  # only finds where an element ends; who parses it is stricter


def array_elements(name: str, text: str) -> Iterator[tuple[int, str]]:
    """(line from 1, text of the element). DataError with the line where the array itself is broken."""
    line, counted = 1, 0
    position = _skip_space(text, 0)
    if text[position : position + 1] != "[":
        raise DataError(f"{name}: expected a JSON array")
    position = _skip_space(text, position + 1)
    closed = text[position : position + 1] == "]"
    while not closed:
        line += text.count("\n", counted, position)
        counted = position
        end = _end_of_value(name, text, position, line)
        yield line, text[position:end]
        position = _skip_space(text, end)
        closed = text[position : position + 1] == "]"
        if not closed:
            if text[position : position + 1] != ",":
                raise _broken(name, text, position, "expected ',' or ']'")
            position = _skip_space(text, position + 1)
    rest = _skip_space(text, position + 1)
    if rest < len(text):
        raise _broken(name, text, rest, "something follows the array")


def _end_of_value(name: str, text: str, position: int, line: int) -> int:
    try:
        return _DECODER.raw_decode(text, position)[1]
    except json.JSONDecodeError as error:
        raise _broken(name, text, error.pos, f"{error.msg}, in the element that starts on line {line}") from error
    except RecursionError as error:
        raise DataError(f"{name}:{line}: nested too deep") from error


def _broken(name: str, text: str, position: int, reason: str) -> DataError:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return DataError(f"{name}:{line}: the array breaks at column {column}: {reason}")


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()
