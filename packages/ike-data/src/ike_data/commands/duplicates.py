"""Examples whose tokens are those of an earlier one, among any number of examples in bounded memory.

Of each example 16 bytes are kept (xxh3-64 of its tokens, number of its row), in temporary files by the last bits of the
hash: what is alike lies in the same file, and one file at a time is looked through. At 10^8 examples the chance that
any two different ones are taken for alike is 3e-4.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from heapq import nlargest
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

import attrs
from xxhash import xxh3_64_intdigest

from ike_data.store.block import Block

BUCKETS = 64
"""At 10^8 examples 25 MB each."""
HELD = 1 << 13
"""Numbers of a bucket in memory before they are written."""
SHOWN = 5


@attrs.frozen
class Group:
    """Examples with the same tokens."""

    copies: int
    """All of them."""
    row: int
    """Of the first, from 0."""


@attrs.define
class Duplicates:
    """Gathers examples. A context manager: the files go with it."""

    _held: list["array[int]"] = attrs.field(factory=lambda: [array("Q") for _ in range(BUCKETS)])
    _files: dict[int, IO[bytes]] = attrs.field(factory=dict)
    _open: ExitStack = attrs.field(factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def add(self, block: Block) -> None:
        """All examples of a block."""
        for row, digest in zip(block.numbers["rows"], _digests(block.numbers), strict=True):
            bucket = digest % BUCKETS
            held = self._held[bucket]
            held.extend((digest, row))
            if len(held) >= HELD:
                held.tofile(self._file(bucket))
                del held[:]

    def found(self) -> tuple[int, list[Group]]:
        """How many examples repeat an earlier one, and the groups with most copies."""
        repeats, largest = 0, list[Group]()
        for bucket in range(BUCKETS):
            pairs = self._read(bucket)
            counts = Counter(pairs[::2])
            repeats += len(pairs) // 2 - len(counts)
            largest = nlargest(SHOWN, [*largest, *_groups(pairs, counts)], key=lambda group: (group.copies, -group.row))
        return repeats, largest

    def _file(self, bucket: int) -> IO[bytes]:
        if bucket not in self._files:
            self._files[bucket] = self._open.enter_context(TemporaryFile())  # noqa: SIM115  the stack closes it
        return self._files[bucket]

    def _read(self, bucket: int) -> "array[int]":
        pairs = array("Q")
        if bucket in self._files:
            file = self._files[bucket]
            file.seek(0)
            pairs.frombytes(file.read())
        return pairs + self._held[bucket]


def _groups(pairs: "array[int]", counts: Mapping[int, int]) -> Iterable[Group]:
    firsts: dict[int, int] = {}
    for digest, row in zip(pairs[::2], pairs[1::2], strict=True):
        if counts[digest] > 1:
            firsts.setdefault(digest, row)
    return (Group(counts[digest], row) for digest, row in firsts.items())


def _digests(numbers: Mapping[str, "array[Any]"]) -> Iterator[int]:
    """Of the tokens of each example, and of where its segments end."""
    tokens, lengths = array("i", numbers["tokens"]), numbers["segments"]
    first = segment = 0
    for count in numbers["examples"]:
        sizes = lengths[segment : segment + count]
        end = first + sum(sizes)
        yield xxh3_64_intdigest(tokens[first:end].tobytes() + (sizes.tobytes() if count > 1 else b""))
        first, segment = end, segment + count
