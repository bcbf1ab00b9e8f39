"""The turns to learn in a marked rendering: which marks are whose, and what stands next to them."""

import re
from collections.abc import Iterable, Sequence

import attrs

from ike_data.encoding import Span
from ike_data.marks import Mark, MarkedText, Marker, Said
from ike_data.messages import Message
from ike_data.row_error import RowError


@attrs.frozen
class Turn:
    """A message to learn, in a rendering."""

    message: int
    """Its place in the conversation."""
    role: str
    calls: bool
    """Whether it calls tools."""
    before: Mark | None
    """The last mark of someone else's text before it."""
    first: Mark
    """Its own; where it closes a text, the template took what opened it."""
    last: Mark
    limit: int
    """Where the next text is, or the rendering ends."""
    speaker_before: str | None
    speaker_after: str | None
    """Role of the next message; None: it is the last."""

    @property
    def before_position(self) -> int:
        """Where the text before ends."""
        return 0 if self.before is None else self.before.position


def find_turns(marked: MarkedText, marker: Marker, messages: Sequence[Message], learned: Iterable[int]) -> list[Turn]:
    """The messages at the places `learned`. Raises RowError where a text does not show, or shows twice."""
    marks = [mark for mark in marked.marks if mark.text >= 0]
    _check_shown(marks, marker.said)
    return [_turn(place, messages, marks, marked, marker) for place in learned]


def _turn(place: int, messages: Sequence[Message], marks: list[Mark], marked: MarkedText, marker: Marker) -> Turn:
    own = [number for number, mark in enumerate(marks) if marker.said[mark.text].owner == place]
    if not own:
        raise RowError(f"the chat template leaves out what messages[{place}] says")
    first, last = own[0], own[-1]
    if own != list(range(first, last + 1)) or marks[last].opens or (first and marks[first - 1].opens):
        raise RowError(f"can't tell whose text is whose: the chat template mixes messages[{place}] with others")
    before = marks[first - 1] if first else None
    return Turn(
        message=place,
        role=messages[place]["role"],
        calls="tool_calls" in messages[place],
        before=before,
        first=marks[first],
        last=marks[last],
        limit=marks[last + 1].position if last + 1 < len(marks) else len(marked.text),
        speaker_before=None if before is None else messages[marker.said[before.text].owner]["role"],
        speaker_after=messages[place + 1]["role"] if place + 1 < len(messages) else None,
    )


def _check_shown(marks: Sequence[Mark], said: Sequence[Said]) -> None:
    seen = [(mark.text, mark.opens) for mark in marks]
    if len(set(seen)) < len(seen):
        raise RowError("can't tell whose text is whose: the chat template shows a text twice")
    for number, text in enumerate(said):
        if text.must_show and (number, False) not in seen:
            raise RowError(f"the chat template leaves out what messages[{text.owner}] says")


def generated(marked: MarkedText) -> list[Span]:
    """What `{% generation %}` blocks gave."""
    marks = [mark for mark in marked.marks if mark.text < 0]
    return [(opening.position, closing.position) for opening, closing in zip(marks[::2], marks[1::2], strict=False)]


def own_spans(marked: MarkedText, marker: Marker, control: re.Pattern[str]) -> tuple[Span, ...] | None:
    """Where the template itself spells control tokens; None where the row spells none, so that all are its own.

    Raises RowError where a spelling could be either's.
    """
    if any(control.search(text) for text in marker.unmarked):
        raise RowError("spells a control token: in a name, a key or a tool, where it can't be told from the template's")
    spelling = {number for number, said in enumerate(marker.said) if control.search(said.text)}
    if not spelling:
        return None
    marks = [mark for mark in marked.marks if mark.text >= 0]
    gaps = [0, *(mark.position for mark in marks), len(marked.text)]
    if (
        len(marks) % 2
        or spelling - {mark.text for mark in marks}
        or any(
            opening.text != closing.text or not opening.opens or closing.opens
            for opening, closing in zip(marks[::2], marks[1::2], strict=True)
        )
    ):
        raise RowError("spells a control token: and the chat template rewrites the text that does")
    return tuple(
        (start + found.start(), start + found.end())
        for start, end in zip(gaps[::2], gaps[1::2], strict=True)
        for found in control.finditer(marked.text[start:end])
    )
