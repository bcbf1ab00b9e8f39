"""Columns of plain numbers on disk: raw arrays, appended to in blocks, read through mmap without a copy.

A file is the numbers themselves in the machine's own byte order: it is read by hosts like the one that wrote it.
"""

import mmap
import os
from array import array
from pathlib import Path
from typing import Any, BinaryIO

import attrs

BUFFER = 1 << 20
"""Bytes kept in memory before they are handed to the system."""

Column = Any  # memoryview, of int or of float: typeshed knows the two apart only from 3.12 on
"""A read-only sequence of numbers whose slices are views."""


@attrs.define
class ColumnFile:
    """A column that is appended to."""

    path: Path
    typecode: str
    """Of `array`."""
    length: int
    """Numbers written so far."""
    _file: BinaryIO

    @classmethod
    def open(cls, path: Path, typecode: str, *, length: int = 0) -> "ColumnFile":
        """The first `length` numbers of the file stay, what lies behind them goes; 0: a new file."""
        file = path.open("r+b" if length else "wb", buffering=BUFFER)
        file.truncate(length * array(typecode).itemsize)
        file.seek(0, os.SEEK_END)
        return cls(path, typecode, length, file)

    def extend(self, values: "array[Any]") -> None:
        """Appends numbers of the column's own type."""
        assert values.typecode == self.typecode
        self._file.write(memoryview(values).cast("B"))
        self.length += len(values)

    def append(self, value: float) -> None:
        """One number."""
        self.extend(array(self.typecode, [value]))

    def sync(self) -> None:
        """Returns when all of it would outlive a power cut."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def map_column(path: Path, typecode: str) -> Column:
    """The numbers of a file, mapped: pages are read when they are looked at, and shared by all who map them."""
    if path.stat().st_size == 0:  # mmap refuses an empty file
        return memoryview(array(typecode)).toreadonly()
    with path.open("rb") as file:
        mapped: Any = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return mapped.cast(typecode)
