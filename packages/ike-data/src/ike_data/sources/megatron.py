"""Token indexes of Megatron-LM, read in place: `corpus.bin` (tokens end to end) and `corpus.idx` (where they are).

The index (`MMapIndexedDataset`, version 1), numbers little end first:
    "MMIDIDX\\0\\0", u64 version, u8 type of a token, u64 S sequences, u64 D + 1 ends of documents,
    i32[S] tokens of each sequence, i64[S] where in the .bin each starts, in bytes,
    i64[D + 1] documents: the place of each one's first sequence, and S.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from ike_core.errors import DataError
from ike_core.examples import Example
from ike_data.sources.token_documents import check_ends, document, mapped, numbers
from ike_data.store.columns import Column

_MAGIC = b"MMIDIDX\0\0"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}
"""Megatron's code -> typecode; 6 and 7 are floats, which are no tokens."""


@attrs.frozen(eq=False)
class MegatronIndex:
    """A `Source` of ike_core.interfaces: a document is an example, its tokens views into the file, all learned.

    A document of several sequences has a segment for each. Pickles as its path.
    """

    path: Path
    """Of the `.idx`."""
    name: str
    """Documents are called `name:17`, from 1."""
    tokens: Column
    """All of the `.bin`."""
    lengths: Column
    """Of every sequence, in tokens."""
    pointers: Column
    """Of every sequence, in bytes."""
    documents: Column
    """First sequence of every document, and the number of sequences."""

    @classmethod
    def open(cls, path: Path, name: str) -> "MegatronIndex":
        """DataError where it is no such index, is cut, or its `.bin` is missing or shorter than it says."""
        content = mapped(path)
        if not content[:9] == _MAGIC or len(content) < _HEADER.size:
            raise DataError(f"{path}: expected the index of a Megatron token index ('MMIDIDX' first)")
        _, version, kind, sequences, ends = _HEADER.unpack(content[: _HEADER.size])
        if version != 1 or kind not in _TYPES:
            raise DataError(f"{path}: version {version} and type {kind}; ike reads version 1 with tokens of integers")
        start = _HEADER.size
        lengths = numbers(path, content, "i", start=start, count=sequences)
        pointers = numbers(path, content, "q", start=start + 4 * sequences, count=sequences)
        documents = numbers(path, content, "q", start=start + 12 * sequences, count=ends)
        check_ends(path, documents, sequences, of="sequences")
        binary = path.with_suffix(".bin")
        tokens = mapped(binary)
        size = struct.calcsize(_TYPES[kind])
        if len(tokens) % size:
            raise DataError(f"{binary}: {len(tokens):,} bytes are no whole number of tokens of {size}: the file is cut")
        index = cls(path, name, tokens.cast(_TYPES[kind]), lengths, pointers, documents)  # type: ignore[call-overload]
        if sequences:
            index._check_last(binary)
        return index

    def __len__(self) -> int:
        return len(self.documents) - 1

    def __getitem__(self, index: int) -> Example:
        place = range(len(self))[index]
        return document(self._sequences(place), source=f"{self.name}:{place + 1}", index=place)

    def size(self, index: int) -> int:
        """Tokens of a document, without reading them."""
        place = range(len(self))[index]
        return sum(self.lengths[self.documents[place] : self.documents[place + 1]])

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path, str]]:
        return MegatronIndex.open, (self.path, self.name)

    def _sequences(self, place: int) -> Iterator[Column]:
        for sequence in range(self.documents[place], self.documents[place + 1]):
            start, rest = divmod(self.pointers[sequence], self.tokens.itemsize)
            end = start + self.lengths[sequence]
            if rest or not 0 <= start <= end <= len(self.tokens):
                raise DataError(f"{self.path}: sequence {sequence} does not lie in the .bin; the index is damaged")
            yield self.tokens[start:end]

    def _check_last(self, binary: Path) -> None:
        """Sequences follow one another: where the last one fits, the others do. Each is checked when it is read."""
        needed = self.pointers[-1] + self.lengths[-1] * self.tokens.itemsize
        if needed > len(self.tokens) * self.tokens.itemsize:
            raise DataError(f"{binary}: {self.tokens.nbytes:,} bytes, and {self.path.name} needs {needed:,}: it is cut")
