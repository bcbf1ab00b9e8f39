"""A conversation with marks, and what the template makes of parts of it."""

from collections.abc import Sequence
from typing import Any

import attrs

from ike_data.marks import Mark, MarkedText, Marker, strings
from ike_data.messages import Message
from ike_data.row_error import RowError
from ike_data.templates import ChatTemplate

PROBE = "x"
"""Said by whoever is asked to speak next."""


@attrs.frozen(eq=False)
class Conversation:
    """Marked messages and the template that renders them."""

    template: ChatTemplate
    marker: Marker
    messages: Sequence[Message]
    """With marks."""
    tools: Sequence[Any] | None

    @classmethod
    def of(cls, template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Any] | None) -> "Conversation":
        """Of messages without marks. Raises RowError."""
        marker = Marker()
        marker.unmarked += strings(tools or [])
        return cls(template, marker, marker.messages(messages), tools)

    @property
    def probe(self) -> Mark:
        """What closes the text of the further message that `part` adds; its position is not to be used."""
        return Mark(position=0, text=len(self.marker.said), opens=False)

    def whole(self) -> MarkedText:
        """Raises RowError where the template refuses it."""
        return MarkedText.of(self.template.render(self.messages, self.tools, marked=True))

    def part(self, count: int, *, speaker: str = "", add_generation_prompt: bool = False) -> MarkedText | None:
        """The first `count` messages, and one more where a `speaker` is asked for; None where the template refuses.

        The further message's marks have the number after those of the conversation.
        """
        messages = list(self.messages[:count])
        if speaker:
            probe = Marker(said=list(self.marker.said)).text(PROBE, count)
            messages.append({"role": speaker, "content": probe})
        try:
            rendering = self.template.render(
                messages, self.tools, add_generation_prompt=add_generation_prompt, marked=True
            )
        except RowError:
            return None
        return MarkedText.of(rendering)


def after(rendering: MarkedText | None, mark: Mark | None, *, until: int | None = None) -> str | None:
    """What a rendering has behind a mark (None: from its start) up to the next text that is marked, or to its end.

    `until`: the text that must come next, None: there must be none. None where it is otherwise.
    """
    if rendering is None:
        return None
    marks = [other for other in rendering.marks if other.text >= 0]
    if mark is None:
        place, start = 0, 0
    else:
        found = [place for place, other in enumerate(marks) if (other.text, other.opens) == (mark.text, mark.opens)]
        if len(found) != 1:
            return None
        place, start = found[0] + 1, marks[found[0]].position
    follower = marks[place] if place < len(marks) else None
    if (follower.text if follower else None) != until:
        return None
    return rendering.text[start : follower.position if follower else None]
