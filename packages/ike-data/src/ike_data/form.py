"""A rendering with its contents left out: a form with blanks, which the contents of any row fill."""

from collections.abc import Sequence

import attrs

from ike_data.marks import openings


@attrs.frozen
class Form:
    """Literal text with blanks between."""

    literals: tuple[str, ...]
    """One more than blanks: before the first, between them, behind the last."""
    blanks: tuple[int, ...]
    """Number of the text that goes there."""

    @classmethod
    def of(cls, marked: str) -> "Form":
        """A blank where a text's marks open; other marks, which stand for nothing, are taken out."""
        literals, blanks = [""], []
        for literal, opened in openings(marked):
            literals[-1] += literal
            if opened is not None:
                blanks.append(opened)
                literals.append("")
        return cls(tuple(literals), tuple(blanks))

    def filled(self, texts: Sequence[str]) -> str:
        """With the texts, by number, in their places."""
        pieces = [""] * (2 * len(self.blanks) + 1)
        pieces[::2] = self.literals
        pieces[1::2] = [texts[number] for number in self.blanks]
        return "".join(pieces)
