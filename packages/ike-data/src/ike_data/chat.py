"""Conversations to examples: the chat template renders them, and exactly the assistant's turns are learned."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import attrs

from ike_core.examples import Example, Segment, Skip
from ike_core.interfaces import Record, Tokenizer
from ike_data.encoding import Encoded
from ike_data.messages import ROLES, read_messages, read_tools
from ike_data.prompts import opening_before
from ike_data.row_error import RowError
from ike_data.spans import Rendering, TurnFinder
from ike_data.templates import ChatTemplate
from ike_data.tokenizers import OffsetTokenizer, offset_tokenizer


@attrs.frozen
class ChatProcessor:
    """A conversation to one example, as the tokenizer's chat template renders it.

    Learned is what the template renders of each turn of the assistant after the header that a generation starts from,
    tool calls and reasoning included, and its end-of-turn. A token that holds characters of both sides counts as the
    assistant's. Control tokens that a row's own text spells are read as text. A row whose turns can't be placed
    exactly is a Skip.
    """

    tokenizer: Tokenizer
    column: str = ""
    """Column of the conversation; '': `messages` or `conversations`, whichever the row has."""
    tools: str = "tools"
    """Column of the tools that the template lists; rows need not have it."""
    roles: Mapping[str, str] = attrs.field(factory=dict)
    """Name in the rows -> system, developer, user, assistant or tool, on top of those that are known."""

    def process(self, record: Record) -> Iterable[Example | Skip]:
        return self.process_block([record])[0]

    def process_block(self, records: Sequence[Record]) -> list[list[Example | Skip]]:
        """What `process` yields for each record."""
        rendered = [self._render(record) for record in records]
        encoded = iter(self._offsets.encoder.encode([row.text for row in rendered if isinstance(row, Rendering)]))
        return [[self._example(next(encoded), row) if isinstance(row, Rendering) else row] for row in rendered]

    def _render(self, record: Record) -> Rendering | Skip:
        try:
            messages = read_messages(record, column=self.column, roles={**ROLES, **self.roles})
            tools = read_tools(record, column=self.tools)
            return self._finder(has_tools=tools is not None).find(messages, tools)
        except RowError as reason:
            return Skip(str(reason))

    def _example(self, encoded: Encoded, rendering: Rendering) -> Example | Skip:
        encoder = self._offsets.encoder
        try:
            encoded = encoder.restrict(encoded, rendering.own)
        except RowError as reason:
            return Skip(str(reason))
        opening = opening_before(encoded.ids, self._offsets.opening)
        tokens = array("i", [*opening, *encoded.ids])
        weights = array("f", bytes(4 * len(tokens)))
        for turn in rendering.turns:
            first, end = encoder.covering(encoded, turn)
            weights[len(opening) + first : len(opening) + end] = array("f", [1.0]) * (end - first)
        return Example((Segment(tokens, weights),))

    def _finder(self, *, has_tools: bool) -> TurnFinder:
        return self._finders[self._offsets.chat_template(has_tools=has_tools)]

    @cached_property
    def _finders(self) -> Mapping[str, TurnFinder]:
        """By template."""
        offsets = self._offsets
        sources = {offsets.chat_template(has_tools=has_tools) for has_tools in (False, True)}
        return {
            source: TurnFinder(ChatTemplate(source, offsets.template_variables), offsets.encoder.pattern)
            for source in sources
        }

    @cached_property
    def _offsets(self) -> OffsetTokenizer:
        return offset_tokenizer(self.tokenizer, part=self)
