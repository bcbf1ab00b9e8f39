"""What token indexes have in common: mapped numbers, and documents that are learned whole."""

import mmap
from array import array
from collections.abc import Iterable
from pathlib import Path

import pyarrow
import pyarrow.compute

from ike_core.errors import DataError
from ike_core.examples import Example, Segment
from ike_data.store.columns import Column

PIECE = 1 << 24
"""Tokens looked at together: pages that were read can go again."""
_ARROW = {
    "B": pyarrow.uint8(),
    "H": pyarrow.uint16(),
    "I": pyarrow.uint32(),
    "Q": pyarrow.uint64(),
    "b": pyarrow.int8(),
    "h": pyarrow.int16(),
    "i": pyarrow.int32(),
    "q": pyarrow.int64(),
}
"""By typecode."""


def mapped(path: Path) -> memoryview:
    """The bytes of a file, mapped: pages are read when they are looked at, and shared by all who map them."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:  # mmap refuses an empty file
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def largest(tokens: Column, *, called: str) -> int:
    """The highest of some ids, at the memory's speed; 0 where there are none. DataError for one below 0."""
    found = 0
    for start in range(0, len(tokens), PIECE):
        piece = tokens[start : start + PIECE]
        ids = pyarrow.Array.from_buffers(_ARROW[piece.format], len(piece), [None, pyarrow.py_buffer(piece)])
        ends = pyarrow.compute.min_max(ids)
        if ends["min"].as_py() < 0:
            raise DataError(f"{called} holds token {ends['min']}; ids are 0 or more")
        found = max(found, ends["max"].as_py())
    return found


def numbers(path: Path, content: memoryview, typecode: str, *, start: int, count: int) -> Column:
    """`count` numbers from a byte on. DataError where the file is shorter than that."""
    end = start + count * array(typecode).itemsize
    if end > len(content):
        raise DataError(f"{path}: {len(content):,} bytes, and its header says at least {end:,}: the file is cut")
    return content[start:end].cast(typecode)  # type: ignore[call-overload]  # any code of `array`


def check_ends(path: Path, ends: Column, total: int, *, of: str) -> None:
    """DataError where they are not 0 first, `total` last, and none smaller than the one before."""
    if not len(ends) or ends[0] != 0 or ends[-1] != total:
        said = f"{ends[0]:,} to {ends[-1]:,}" if len(ends) else "none"
        raise DataError(f"{path}: {said}; it must go from 0 to {total:,}, the number of {of}")


def document(parts: Iterable[Column], *, source: str, index: int) -> Example:
    """Tokens as they lie in the file, each learned with weight 1."""
    segments = tuple(Segment(part, array("f", [1.0]) * len(part)) for part in parts)
    return Example(segments, source=source, index=index)
