"""What is the same in the renderings of all conversations that differ only in what is said."""

from collections.abc import Sequence
from itertools import accumulate

import attrs

from ike_data.form import Form
from ike_data.spans import Rendering
from ike_data.traced_text import Condition, Traced

Place = tuple[int, int]
"""A position in the text of a form: how many blanks are before it, and how much literal text."""


@attrs.define(eq=False)
class Skeleton:
    """A rendering whose texts may be exchanged."""

    form: Form
    conditions: tuple[Condition, ...]
    """What must be true of the texts."""
    turns: tuple[tuple[Place, Place], ...]
    spells: bool
    """As in Rendering; the texts themselves spell nothing."""
    uses: int = 0
    """How often it has rendered."""

    @classmethod
    def of(cls, traced: Traced, rendering: Rendering, texts: Sequence[str]) -> "Skeleton | None":
        """From the rendering of a conversation in which no text spells a control token. None where it can't be had."""
        form = traced.form
        if form.filled(texts) != rendering.text:
            return None
        turns = []
        for span in rendering.turns:
            start, end = (_place(form, texts, position) for position in span)
            if start is None or end is None:
                return None
            turns.append((start, end))
        return cls(form, traced.conditions, tuple(turns), rendering.spells)

    @property
    def is_due(self) -> bool:
        """Whether what it gave last is to be looked at: of the first few often, then ever more rarely."""
        return self.uses & (self.uses - 1) == 0

    def rendering(self, texts: Sequence[str]) -> Rendering | None:
        """With other texts; None where a condition does not hold for them."""
        if not all(condition.holds(texts) for condition in self.conditions):
            return None
        self.uses += 1
        filled = list(accumulate([len(texts[number]) for number in self.form.blanks], initial=0))

        def position(place: Place) -> int:
            return filled[place[0]] + place[1]

        turns = tuple((position(start), position(end)) for start, end in self.turns)
        return Rendering(self.form.filled(texts), turns, None, spells=self.spells)


def _place(form: Form, texts: Sequence[str], position: int) -> Place | None:
    """None where the position is within a text."""
    literal, said = 0, 0
    for before, piece in enumerate(form.literals):
        if literal + said <= position <= literal + said + len(piece):
            return before, position - said
        literal += len(piece)
        said += len(texts[form.blanks[before]]) if before < len(form.blanks) else 0
    return None
