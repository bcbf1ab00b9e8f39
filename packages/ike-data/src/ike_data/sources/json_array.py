"""The elements of a JSON array with the line each starts on; one bad element does not spoil the others.

Only strings, brackets, braces and commas are looked at: where an element ends is all that is asked here, and who parses
it is strict. No more is held than one element and a piece of the file.
"""

import re
from collections.abc import Iterator

import attrs

from ike_core.errors import DataError
from ike_data.sources.broken import BrokenFileError
from ike_data.sources.formats import Format
from ike_data.sources.limits import check_row
from ike_data.sources.paths import SourceFile
from ike_data.sources.utf8 import utf8_pieces

_SPACE = b" \t\r\n"
_NO_SPACE = re.compile(rb"[^ \t\r\n]")
_STRUCTURE = re.compile(rb'["\[\]{},]')
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACKETS = rb"[\[{](?:[^\"\[\]{}]++|" + _STRING + rb"%s)*+[\]}]"
_NESTED = _BRACKETS % b""
for _ in range(4):  # chats are three deep; what is deeper takes the slower way
    _NESTED = _BRACKETS % (b"|" + _NESTED)
_WHOLE = re.compile(_NESTED + rb"(?=[ \t\r\n]*+[,\]])", re.DOTALL)
"""An element in brackets with what must follow it: found at once where the buffer has it all."""
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


def starts_array(file: SourceFile) -> bool:
    """Whether the first character that is no white space opens an array."""
    try:
        for piece in utf8_pieces(file, Format.JSON):
            if content := piece.lstrip(_SPACE):
                return content.startswith(b"[")
    except BrokenFileError:  # who reads on says where
        pass
    return False


def array_elements(file: SourceFile) -> Iterator[tuple[int, bytes]]:
    """(line from 1, text of the element). DataError with the line where the array itself is broken."""
    text = _Text(file.name, utf8_pieces(file, Format.JSON))
    assert text.peek() == b"[", "see starts_array"
    text.position += 1
    closed = text.peek() == b"]"
    while not closed:
        line, end = text.line(), text.end_of_element()
        element = bytes(text.buffer[text.position : end]).rstrip(_SPACE)
        if not element:
            raise text.broken(end, "expected an element")
        yield line, element
        text.position = end
        closed = text.peek() == b"]"
        if not closed:
            if text.peek() != b",":
                raise text.broken(text.position, "expected ',' or ']'")
            text.position += 1
            text.peek()
    text.position += 1
    if text.peek():
        raise text.broken(text.position, "something follows the array")


@attrs.define
class _Text:
    """A text that is read forward: what lies before `position` is let go of when more is fetched."""

    name: str
    pieces: Iterator[bytes]
    buffer: bytearray = attrs.field(factory=bytearray)
    position: int = 0
    """In the buffer."""
    lines_gone: int = 0
    """Newlines before the buffer."""
    columns_gone: int = 0
    """Bytes between the last of them and the buffer."""
    _counted: int = 0
    _lines: int = 0
    """Newlines in the buffer before `_counted`."""

    def peek(self) -> bytes:
        """Moves over white space; the character there, or nothing at the end."""
        while (match := _NO_SPACE.search(self.buffer, self.position)) is None:
            self.position = len(self.buffer)
            if self._fetch() is None:
                return b""
        self.position = match.start()
        return match[0]

    def line(self) -> int:
        """Of the position, from 1."""
        self._lines += self.buffer.count(b"\n", self._counted, self.position)
        self._counted = self.position
        return self.lines_gone + self._lines + 1

    def end_of_element(self) -> int:
        """Where the element at the position ends, or the white space behind it."""
        if whole := _WHOLE.match(self.buffer, self.position):
            return whole.end()
        depth, at = 0, self.position
        while True:
            match = _STRUCTURE.search(self.buffer, at)
            if match is None:
                at = self._fetch_within(len(self.buffer), depth)
                continue
            mark, at = match[0], match.end()
            if mark == b'"':
                at = self._end_of_string(at)
            elif mark in b"[{":
                depth += 1
            elif depth == 0:
                return match.start()
            elif mark != b",":
                depth -= 1

    def broken(self, at: int, reason: str) -> DataError:
        """The error of a place in the buffer."""
        line = self.lines_gone + self.buffer.count(b"\n", 0, at) + 1
        newline = self.buffer.rfind(b"\n", 0, at)
        column = at - newline if newline >= 0 else self.columns_gone + at + 1
        return DataError(f"{self.name}:{line}: the array breaks at column {column}: {reason}")

    def _end_of_string(self, at: int) -> int:
        while True:
            match = _IN_STRING.match(self.buffer, at)
            assert match is not None, "it matches nothing, too"
            at = match.end()
            if self.buffer[at : at + 1] == b'"':
                return at + 1
            at = self._fetch_within(at, depth=1)

    def _fetch_within(self, at: int, depth: int) -> int:
        """`at`, in the buffer with more in it."""
        gone = self._fetch()
        if gone is None:
            line = self.line()
            end = len(self.buffer)
            raise self.broken(end, f"it ends inside the element of line {line}" if depth else "expected ',' or ']'")
        return at - gone

    def _fetch(self) -> int | None:
        """How many bytes were let go of; None where there is no more."""
        line = self.line()
        gone = self.position
        if gone:
            newline = self.buffer.rfind(b"\n", 0, gone)
            self.columns_gone = gone - newline - 1 if newline >= 0 else self.columns_gone + gone
            self.lines_gone, self._lines, self._counted, self.position = line - 1, 0, 0, 0
            del self.buffer[:gone]
        try:
            check_row(len(self.buffer), "the element")
        except BrokenFileError as error:
            raise DataError(f"{self.name}:{line}: {error}") from error
        try:
            piece = next(self.pieces, None)
        except BrokenFileError as error:
            last = line + self.buffer.count(b"\n")
            raise DataError(f"{self.name}:{last}: {error}") from error
        if piece is None:
            return None
        self.buffer += piece
        return gone
