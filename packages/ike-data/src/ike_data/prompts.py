"""Conversations as the model is asked to go on with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ike_core.errors import DataError
from ike_data.conversation import Conversation
from ike_data.encoding import Encoder, Span
from ike_data.marks import strings
from ike_data.messages import ROLES, Message, read_talk
from ike_data.row_error import RowError
from ike_data.templates import ChatTemplate
from ike_data.turns import own_spans


@attrs.frozen(eq=False)
class Prompter:
    """Messages to the tokens of a prompt."""

    template: ChatTemplate
    encoder: Encoder
    opening: tuple[int, ...]
    """What the tokenizer puts before a text of its own accord."""

    def tokens(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """With the generation prompt. DataError where the messages or the template can't be used."""
        try:
            read = list(read_talk(list(messages), column="messages", roles=ROLES).messages)
            text = self.template.render(read, None, add_generation_prompt=True)
            encoded = self.encoder.restrict(self.encoder.encode([text])[0], self._own(read, text))
        except RowError as error:
            raise DataError(str(error)) from error
        return [*opening_before(encoded.ids, self.opening), *encoded.ids]

    def _own(self, messages: Sequence[Message], text: str) -> tuple[Span, ...] | None:
        if not any(self.encoder.spells_control(said) for said in strings(list(messages))):
            return None
        conversation = Conversation.of(self.template, messages, None)
        marked = conversation.part(len(messages), add_generation_prompt=True)
        if marked is None or marked.text != text:
            raise RowError("spells a control token: and the chat template can't tell whose it is")
        return own_spans(marked, conversation.marker, self.encoder.pattern)


def opening_before(tokens: Sequence[int], opening: tuple[int, ...]) -> tuple[int, ...]:
    """What is to stand before a rendering: nothing where the template has rendered the bos itself."""
    return () if tuple(tokens[: len(opening)]) == opening else opening
