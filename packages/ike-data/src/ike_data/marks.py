"""Marks around what a row says, carried through a template, so that its rendering tells whose text is whose.

A mark is one private-use character of plane 15. It stands inside the white space at the ends of a text, so that a
template which trims finds the same thing to trim; a rendering counts only if it is the plain one without its marks.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from ike_data.messages import REASONING, Message
from ike_data.row_error import RowError

GENERATION = ("\U0010fffc", "\U0010fffd")
"""Stand around what `{% generation %}` blocks give, in a marked rendering: the last two private-use characters."""
_FIRST = 0xF0000
_LAST = 0xFFFFD
_MARK = re.compile("[\U000f0000-\U000ffffd\U0010fffc\U0010fffd]")

_THINK = re.compile("(</?think>)")
"""Reasoning inside the content: templates take it apart at these, so they stand outside of marks."""


@attrs.frozen
class Mark:
    """One mark in a rendering."""

    position: int
    """In the text without marks."""
    text: int
    """Which of the marked texts; -1: a `{% generation %}` block."""
    opens: bool


@attrs.frozen
class MarkedText:
    """A rendering, its marks taken out."""

    text: str
    marks: tuple[Mark, ...]

    @classmethod
    def of(cls, rendering: str) -> "MarkedText":
        pieces, marks, position, length = [], [], 0, 0
        for found in _MARK.finditer(rendering):
            pieces.append(rendering[position : found.start()])
            length += len(pieces[-1])
            position = found.end()
            character = found.group()
            if character in GENERATION:
                marks.append(Mark(length, -1, character == GENERATION[0]))
            else:
                number = ord(character) - _FIRST
                marks.append(Mark(length, number // 2, number % 2 == 0))
        pieces.append(rendering[position:])
        return cls("".join(pieces), tuple(marks))


def is_marked(text: str) -> bool:
    """Whether any of what a row says is in it, or was."""
    return not text.isascii() and any(_FIRST <= ord(mark.group()) <= _LAST for mark in _MARK.finditer(text))


def openings(marked: str) -> Iterator[tuple[str, int | None]]:
    """Text up to each mark, and which text opens there; None where the mark is another, or it is the end."""
    position = 0
    for found in _MARK.finditer(marked):
        number = ord(found.group()) - _FIRST
        yield marked[position : found.start()], number // 2 if number <= _LAST - _FIRST and number % 2 == 0 else None
        position = found.end()
    yield marked[position:], None


@attrs.frozen
class Said:
    """A text that carries marks."""

    text: str
    core: str
    """Without the white space at its ends."""
    owner: int
    """The message it belongs to."""
    must_show: bool
    """False for reasoning, which templates may drop."""

    @property
    def indent(self) -> str:
        """The white space that it starts with."""
        return self.text[: len(self.text) - len(self.text.lstrip())]


@attrs.define
class Marker:
    """Marks the texts of a conversation."""

    is_hollow: bool = False
    """Whether nothing is left between the marks: what texts say is in `said` alone."""
    said: list[Said] = attrs.field(factory=list)
    """By number; see `Mark.text`."""
    unmarked: list[str] = attrs.field(factory=list)
    """The strings that carry no mark: names, roles, ids."""

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """Copies, with marks."""
        return [self._message(message, owner) for owner, message in enumerate(messages)]

    def content(self, content: str, owner: int) -> str:
        """What is thought and what is said, each with its own marks. Raises RowError."""
        if "think>" not in content:
            return self.text(content, owner)
        pieces = _THINK.split(content)
        said = len(pieces) - 1
        return "".join(
            piece if _THINK.fullmatch(piece) else self.text(piece, owner, must_show=place == said)
            for place, piece in enumerate(pieces)
        )

    def text(self, text: str, owner: int, *, must_show: bool = True) -> str:
        """With its two marks; white space and the empty text get none. Raises RowError."""
        if not text.isascii() and _MARK.search(text):
            raise RowError("private-use characters of plane 15, which ike needs for itself: take them out")
        core = text.strip()
        if not core:
            return text
        opening = _FIRST + 2 * len(self.said)
        if opening + 1 > _LAST:
            raise RowError(f"too many texts to tell apart: more than {len(self.said)}")
        self.said.append(Said(text, core, owner, must_show))
        shown = chr(opening) + ("" if self.is_hollow else core) + chr(opening + 1)
        if core == text:
            return shown
        before, _, behind = text.partition(core)
        return before + shown + behind

    def _message(self, message: Message, owner: int) -> Message:
        marked: Message = {}
        for key, value in message.items():
            if key == "content":
                marked[key] = self.content(value, owner)
            elif key in REASONING and isinstance(value, str):
                marked[key] = self.text(value, owner, must_show=False)
            elif key == "tool_calls":
                marked[key] = [self._call(call, owner) for call in value]
            else:
                marked[key] = value
                self.unmarked += strings(value)
        return marked

    def _call(self, call: Message, owner: int) -> Message:
        if "function" in call:
            self.unmarked += strings({key: value for key, value in call.items() if key != "function"})
            return {**call, "function": self._call(call["function"], owner)}
        others = {key: value for key, value in call.items() if key not in ("name", "arguments")}
        self.unmarked += strings(others)
        return {
            **call,
            "name": self.text(call["name"], owner),
            "arguments": self._arguments(call["arguments"], owner),
        }

    def _arguments(self, value: Any, owner: int) -> Any:
        if isinstance(value, str):
            return self.text(value, owner)
        if isinstance(value, list):
            return [self._arguments(item, owner) for item in value]
        if isinstance(value, dict):
            self.unmarked += value
            return {key: self._arguments(item, owner) for key, item in value.items()}
        return value


def strings(value: Any) -> Iterator[str]:
    """All strings of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
