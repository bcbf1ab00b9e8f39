"""Arrays of tokens with an index, read in place: `corpus.npy` and `corpus.offsets.npy`, as numpy.save writes them.

`corpus.npy` holds the tokens of all documents end to end, one dimension of integers; `corpus.offsets.npy` D + 1 numbers
of 64 bits from 0 to the number of tokens: document i is `tokens[offsets[i] : offsets[i + 1]]`.
"""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from ike_core.errors import DataError
from ike_core.examples import Example
from ike_data.sources.folders import offsets_of
from ike_data.sources.token_documents import check_ends, document, mapped, numbers
from ike_data.store.columns import Column

_MAGIC = b"\x93NUMPY"
_TYPES = {"|u1": "B", "|i1": "b", "<u2": "H", "<i2": "h", "<u4": "I", "<i4": "i", "<u8": "Q", "<i8": "q"}
"""numpy's name of a type -> typecode."""
_OFFSETS = ("<i8", "<u8")


@attrs.frozen(eq=False)
class TokenArray:
    """A `Source` of ike_core.interfaces: a document is an example, its tokens a view into the file, all learned.

    Pickles as its path.
    """

    path: Path
    """Of the tokens."""
    name: str
    """Documents are called `name:17`, from 1."""
    tokens: Column
    offsets: Column

    @classmethod
    def open(cls, path: Path, name: str) -> "TokenArray":
        """DataError where a file is missing, cut, no array of one dimension, or of another type."""
        index = offsets_of(path)
        if not index.exists():
            raise DataError(
                f"{path}: an array of tokens needs {index.name} beside it: where each document starts, and the end"
            )
        array = cls(path, name, _read(path, tuple(_TYPES)), _read(index, _OFFSETS))
        check_ends(index, array.offsets, len(array.tokens), of="tokens")
        return array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Example:
        place = range(len(self))[index]
        start, end = self._between(place)
        return document([self.tokens[start:end]], source=f"{self.name}:{place + 1}", index=place)

    def size(self, index: int) -> int:
        """Tokens of a document, without reading them."""
        start, end = self._between(range(len(self))[index])
        return end - start

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path, str]]:
        return TokenArray.open, (self.path, self.name)

    def _between(self, place: int) -> tuple[int, int]:
        start, end = self.offsets[place], self.offsets[place + 1]
        if not 0 <= start <= end <= len(self.tokens):
            raise DataError(f"{offsets_of(self.path)}: document {place + 1} is {start:,} to {end:,}")
        return start, end


def _read(path: Path, allowed: tuple[str, ...]) -> Column:
    """The numbers of a .npy file. Its header is a Python literal: numpy/lib/format.py."""
    content = mapped(path)
    if content[:6] != _MAGIC or len(content) < 12:
        raise DataError(f"{path}: expected an array that numpy.save wrote")
    width = 2 if content[6] == 1 else 4
    start = 8 + width + int.from_bytes(content[8 : 8 + width], "little")
    try:
        header = ast.literal_eval(bytes(content[8 + width : start]).decode())
        kind, shape = header["descr"], header["shape"]
        (count,) = shape
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise DataError(f"{path}: expected an array of one dimension, and can't read its header: {error}") from error
    if kind not in allowed:
        raise DataError(f"{path}: numbers of type {kind!r}; it must be one of {', '.join(allowed)}")
    return numbers(path, content, _TYPES[kind], start=start, count=count)
