"""Appends blocks to a store; from time to time all of it is made to last, so that a build goes on where it stood."""

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import attrs
import orjson

from ike_core.interfaces import Record
from ike_data.ledger import Tally, lines_of
from ike_data.store.atomic import replace
from ike_data.store.block import COUNTS, NARROW, NARROW_BELOW, NUMBERS, Block
from ike_data.store.columns import ColumnFile, map_column
from ike_data.store.hashing import hash_file
from ike_data.store.manifest import FileFacts, Manifest
from ike_data.store.sample import is_sampled

PROGRESS = "progress.json"
ENTRIES = "ledger.jsonl"
SAMPLE = "sample.jsonl"
_SUFFIXES = {NARROW: "u16", "i": "i32"}
"""A column of either width has a name of its own: while it is widened, both are there."""


@attrs.frozen
class Progress:
    """What of a store is certain to be on disk."""

    tally: Mapping[str, Any]
    bytes: Mapping[str, int]
    """By file."""
    tokens: str
    """Typecode of the tokens' column."""

    @classmethod
    def read(cls, folder: Path) -> "Progress | None":
        """None where a build starts from nothing, or less is there than was recorded."""
        try:
            progress = cls(**orjson.loads((folder / PROGRESS).read_bytes()))
            sizes = {name: (folder / name).stat().st_size for name in progress.bytes}
        except (OSError, ValueError, TypeError):
            return None
        return progress if all(sizes[name] >= size for name, size in progress.bytes.items()) else None


@attrs.define
class StoreWriter:
    """A store that grows. OSError where the disk is full, or the folder can't be written to."""

    folder: Path
    tally: Tally
    _columns: dict[str, ColumnFile]
    _entries: ColumnFile
    _sample: ColumnFile

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator["StoreWriter"]:
        """Goes on where the last progress was recorded; `writer.tally.rows` are done."""
        folder.mkdir(parents=True, exist_ok=True)
        progress = Progress.read(folder) or Progress({}, {}, NARROW)
        writer = cls._of(folder, progress)
        try:
            yield writer
        finally:
            for file in writer._files:
                file.close()

    @classmethod
    def _of(cls, folder: Path, progress: Progress) -> "StoreWriter":
        def column(name: str, typecode: str) -> ColumnFile:
            length = progress.bytes.get(name, 0) // array(typecode).itemsize
            return ColumnFile.open(folder / name, typecode, length=length)

        typecodes = {**NUMBERS, **dict.fromkeys(COUNTS, "q"), "tokens": progress.tokens}
        columns = {name: column(_file_name(name, typecode), typecode) for name, typecode in typecodes.items()}
        for name in COUNTS:
            if not columns[name].length:
                columns[name].extend(array("q", [0]))
        tally = Tally.of(progress.tally) if progress.tally else Tally()
        return cls(folder, tally, columns, column(ENTRIES, "B"), column(SAMPLE, "B"))

    @property
    def _files(self) -> list[ColumnFile]:
        return [*self._columns.values(), self._entries, self._sample]

    def sample(self, row: int, source: str, record: Record) -> None:
        """Keeps a row as it was read if it is one that is processed afresh at each start, and JSON can hold it."""
        if not is_sampled(row, row + 1):
            return
        try:
            line = orjson.dumps([row, source, record])
        except TypeError:
            return
        if orjson.loads(line)[2] == record:
            self._sample.extend(array("B", line + b"\n"))

    def append(self, block: Block) -> None:
        """The rows that follow those appended so far."""
        numbers = block.numbers
        if numbers["tokens"].typecode != self._columns["tokens"].typecode:
            numbers = {**numbers, "tokens": self._alike(numbers["tokens"])}
        for name in COUNTS:
            starts = accumulate(numbers[name], initial=self._columns[COUNTS[name]].length)
            next(starts)  # it stands there already
            self._columns[name].extend(array("q", starts))
        for name in NUMBERS:
            self._columns[name].extend(numbers[name])
        self._entries.extend(array("B", b"".join(lines_of(block.entries))))
        block.add_to(self.tally)

    def record(self) -> None:
        """All that was appended outlives a kill, and a power cut."""
        for file in self._files:
            file.sync()
        sizes = {file.path.name: file.path.stat().st_size for file in self._files}
        progress = Progress(attrs.asdict(self.tally), sizes, self._columns["tokens"].typecode)
        replace(self.folder / PROGRESS, orjson.dumps(attrs.asdict(progress)))

    def finish(self, description: Mapping[str, Any]) -> None:
        """The last word: from here on the folder is a store."""
        for file in self._files:
            file.sync()
        for path in set(self.folder.iterdir()) - {file.path for file in self._files}:
            path.unlink()
        others = {"entries": _facts(self._entries), "sample": _facts(self._sample)}
        columns = {name: _facts(file) for name, file in self._columns.items()}
        Manifest(columns=columns, others=others, tally=self.tally, description=description).write(self.folder)

    def _alike(self, tokens: "array[int]") -> "array[int]":
        """In the width of the column, which is widened when it must be."""
        column = self._columns["tokens"]
        if column.typecode == NARROW and max(tokens) >= NARROW_BELOW:
            self._columns["tokens"] = _widened(column)
        return array(self._columns["tokens"].typecode, tokens)


def _file_name(column: str, typecode: str) -> str:
    return f"{column}.{_SUFFIXES[typecode]}" if column == "tokens" else column


def _widened(column: ColumnFile) -> ColumnFile:
    """The same numbers in a file of 4 bytes each. The old file stays until the store is whole: progress may name it."""
    column.sync()
    wide = ColumnFile.open(column.path.with_name(_file_name("tokens", "i")), "i")
    numbers = map_column(column.path, NARROW)
    for start in range(0, len(numbers), NARROW_BELOW):
        wide.extend(array("i", numbers[start : start + NARROW_BELOW]))
    column.close()
    return wide


def _facts(file: ColumnFile) -> FileFacts:
    return FileFacts(file.path.name, file.typecode, os.path.getsize(file.path), hash_file(file.path))
