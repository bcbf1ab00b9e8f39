"""Columns of plain numbers on disk: raw arrays, written in blocks, read through mmap without a copy.

A file is the numbers themselves in the machine's own byte order: it is read on the host that wrote it.
"""

import mmap
from array import array
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import attrs

BLOCK = 1 << 16
"""Numbers kept in memory before they are written."""

Column = Any  # memoryview, of int or of float: typeshed knows the two apart only from 3.12 on
"""A read-only sequence of numbers whose slices are views."""


@attrs.define
class ColumnWriter:
    """Appends to one file. A context manager: what is left is written at its end."""

    path: Path
    typecode: str
    length: int = 0
    """Numbers appended so far."""
    _pending: Any = attrs.field(init=False)
    _file: BinaryIO = attrs.field(init=False)

    def append(self, value: float) -> None:
        self.extend((value,))

    def extend(self, values: Iterable[float]) -> None:
        before = len(self._pending)
        self._pending.extend(values)
        self.length += len(self._pending) - before
        self._flush(at_least=BLOCK)

    def __enter__(self) -> Self:
        self._pending = array(self.typecode)
        self._file = self.path.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            self._flush(at_least=1)

    def _flush(self, *, at_least: int) -> None:
        if len(self._pending) >= at_least:
            self._pending.tofile(self._file)
            del self._pending[:]


def read_column(path: Path, typecode: str) -> Column:
    """The numbers of a file, mapped: pages are read when they are looked at, and shared by all who map them."""
    if path.stat().st_size == 0:  # mmap refuses an empty file
        return memoryview(array(typecode))
    with path.open("rb") as file:
        mapped: Any = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return mapped.cast(typecode)
