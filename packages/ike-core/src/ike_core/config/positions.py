"""The line of every key of a TOML file. tomli gives values without positions; this gives positions without values.

Reads only what tomli has accepted, and so takes the grammar for granted: keys, headers, and where a value ends.
"""

import re
from collections.abc import Mapping

import tomli

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!"")|""(?!"))*"{3,5}'
    r"|'''(?:[^']|'(?!'')|''(?!'))*'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")


def positions(text: str) -> Mapping[tuple[str, ...], int]:
    """Line, from 1, where each key and table is first named. An array is one value, `[[tables]]` too."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line, self._counted = 1, 0
        self._lines: dict[tuple[str, ...], int] = {}
        self._arrays: set[tuple[str, ...]] = set()

    def scan(self) -> Mapping[tuple[str, ...], int]:
        table: tuple[str, ...] | None = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self._lines

    def _header(self) -> tuple[str, ...] | None:
        """The table it opens; None under an array of tables, which is a value of its own."""
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        self._skip(_SPACE)
        key, line = self._key()
        self._skip(_SPACE)
        self._at += 2 if is_array else 1
        if any(key[:length] in self._arrays for length in range(1, len(key) + 1)):
            return None
        self._record((), key, line)
        if is_array:
            self._arrays.add(key)
        return None if is_array else key

    def _pair(self, table: tuple[str, ...] | None) -> None:
        key, line = self._key()
        self._record(table, key, line)
        self._skip(_SPACE)
        self._at += 1  # =
        self._skip(_SPACE)
        self._value(None if table is None else table + key)

    def _value(self, key: tuple[str, ...] | None) -> None:
        """Moves behind a value; the keys of an inline table are recorded under `key`."""
        opening = self._text[self._at]
        if opening in "[{":
            self._at += 1
            self._skip(_BLANK)
            while self._text[self._at] not in "]}":
                if opening == "[":
                    self._value(None)
                else:
                    self._pair(key)
                self._skip(_BLANK)
                if self._text[self._at] == ",":
                    self._at += 1
                    self._skip(_BLANK)
            self._at += 1
        elif opening in "\"'":
            self._skip(_STRING)
        else:
            self._skip(_SCALAR)

    def _key(self) -> tuple[tuple[str, ...], int]:
        """A dotted key, and the line it stands in."""
        line = self._line_here()
        parts = [self._key_part()]
        self._skip(_SPACE)
        while self._text[self._at] == ".":
            self._at += 1
            self._skip(_SPACE)
            parts.append(self._key_part())
            self._skip(_SPACE)
        return tuple(parts), line

    def _key_part(self) -> str:
        if self._text[self._at] in "\"'":
            return str(tomli.loads(f"key = {self._skip(_STRING)}")["key"])
        return self._skip(_BARE_KEY)

    def _record(self, table: tuple[str, ...] | None, key: tuple[str, ...], line: int) -> None:
        if table is not None:
            for length in range(1, len(key) + 1):
                self._lines.setdefault(table + key[:length], line)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, "tomli accepted what this scanner does not know"
        self._at = match.end()
        return match.group()

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line
