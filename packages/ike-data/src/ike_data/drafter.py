"""Conversations and plain texts to drafts, each with what of it is to be learned."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import attrs

from ike_data.drafts import Draft
from ike_data.messages import Talk
from ike_data.renderings import Renderings
from ike_data.row_error import RowError
from ike_data.spans import TurnFinder
from ike_data.templates import ChatTemplate
from ike_data.tokenizers import OffsetTokenizer

Special = Literal["text", "skip", "allow"]
"""What becomes of a row whose own text spells a control token: it is read as text, the row is skipped, or the spelling
is taken as the control token. Each is counted."""

SPELLS = "spells a control token"


@attrs.frozen(eq=False)
class Drafter:
    """Makes them for one tokenizer."""

    tokenizer: OffsetTokenizer
    special: Special = "text"

    def talk(self, talk: Talk, learned: Mapping[int, float]) -> Draft:
        """As the chat template renders it; `learned`: weight of each message that is learned, by its place.

        Raises RowError where one of them can't be placed exactly.
        """
        renderings = self._renderings[self.tokenizer.template(has_tools=talk.tools is not None)]
        rendering = renderings.find(talk, list(learned), allows_special=self.special == "allow")
        spans = tuple(zip(rendering.turns, learned.values(), strict=True))
        own = None if self.special == "allow" else rendering.own
        return Draft(rendering.text, spans, own, notes=self._notes(spells=rendering.spells))

    def text(self, prompt: str, answer: str) -> Draft:
        """End to end, and the eos; the answer is learned. Raises RowError."""
        whole = prompt + answer
        spells = self.tokenizer.encoder.spells_control(whole)
        own = None if self.special == "allow" else ()
        return Draft(whole, (((len(prompt), len(whole)), 1.0),), own, ends=True, notes=self._notes(spells=spells))

    def _notes(self, *, spells: bool) -> tuple[str, ...]:
        if not spells:
            return ()
        if self.special == "skip":
            raise RowError(f"{SPELLS}: and special_in_content = 'skip'")
        return (f"{SPELLS}: {'taken as one' if self.special == 'allow' else 'read as text'}",)

    @cached_property
    def _renderings(self) -> Mapping[ChatTemplate, Renderings]:
        """By template."""
        tokenizer = self.tokenizer
        pattern = tokenizer.encoder.pattern
        templates = {tokenizer.template(has_tools=has_tools) for has_tools in (False, True)}
        return {template: Renderings(TurnFinder(template, pattern)) for template in templates}
