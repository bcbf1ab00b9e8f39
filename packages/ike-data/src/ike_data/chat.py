"""Conversations to examples: the chat template renders them, and exactly the turns that are meant are learned."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

import attrs

from ike_core.examples import AnyExample, Example, Segment, Skip
from ike_core.interfaces import Record, Tokenizer
from ike_data.drafter import Drafter, Special
from ike_data.drafts import Plan, carry_out
from ike_data.messages import ASSISTANT, ROLES, Talk, check_roles
from ike_data.row_columns import check_known, renamed, riding, weight
from ike_data.row_error import RowError
from ike_data.shapes import CONVERSATIONS, name_of
from ike_data.talks import KNOWN, read_row
from ike_data.tokenizers import offset_tokenizer

ChatShape = Literal["auto", "messages", "sharegpt", "alpaca", "prompt_completion", "question_answer", "transcript"]


@attrs.frozen
class ChatProcessor:
    """A conversation to one example, as the tokenizer's chat template renders it.

    Learned is what the template renders of each turn of the assistant after the header that a generation starts from,
    tool calls and reasoning included, and its end-of-turn. A token that holds characters of both sides counts as the
    assistant's. A row whose turns can't be placed exactly is a Skip. A turn's own `weight` or `train` is obeyed, and
    so is the row's `weight`.
    """

    tokenizer: Tokenizer
    shape: ChatShape = "auto"
    """What a row looks like; 'auto': the one shape that it fits. The summary tells which."""
    columns: Mapping[str, str] = attrs.field(factory=dict)
    """Known column -> what the rows call it: { prompt = "query" }, 'outer.inner' for a nested one."""
    roles: Mapping[str, str] = attrs.field(factory=dict)
    """Name in the rows -> system, developer, user, assistant or tool, on top of those that are known."""
    learn: Literal["all", "last"] = "all"
    """Which turns of `learn_roles`: every one, or the last alone."""
    learn_roles: tuple[str, ...] = (ASSISTANT,)
    """Whose turns are learned; of others than the assistant what they say and its end-of-turn, without a header."""
    reasoning: bool = True
    """Whether the assistant's reasoning is part of the conversation; false: it is taken out of the rows."""
    special_in_content: Special = "text"
    """A row's own text that spells a control token is read as 'text', or the row is a 'skip', or 'allow': it is one."""
    fields: tuple[str, ...] = ()
    """Columns that ride along in the example's `fields`."""

    def __attrs_post_init__(self) -> None:
        check_known(self.columns, KNOWN)
        check_roles(self.roles, self.learn_roles)

    def process(self, record: Record) -> Iterable[AnyExample | Skip]:
        return self.process_block([record])[0]

    def process_block(self, records: Sequence[Record]) -> list[list[AnyExample | Skip]]:
        """What `process` yields for each record."""
        return carry_out([self._plan(record) for record in records], self._drafter.tokenizer)

    def shape_of(self, record: Record) -> str:
        """The name of the shape that a row is read as; '': none."""
        return name_of(record, self.columns, self.shape, CONVERSATIONS)

    def _plan(self, record: Record) -> Plan | Skip:
        try:
            row = renamed(record, self.columns)
            talk = read_row(row, self.shape, self._known_roles)
            talk = talk if self.reasoning else talk.without_reasoning()
            draft = self._drafter.talk(talk, self._learned(talk))
            own, fields = weight(row), riding(record, self.fields)
        except RowError as reason:
            return Skip(str(reason))

        def build(segments: Sequence[Segment]) -> list[AnyExample]:
            return [Example(tuple(segments), weight=own, fields=fields, notes=draft.notes)]

        return Plan((draft,), build)

    def _learned(self, talk: Talk) -> dict[int, float]:
        """Weight of each message to learn, by its place. Raises RowError where there is none."""
        roles = [message["role"] for message in talk.messages]
        places = [place for place, role in enumerate(roles) if role in self.learn_roles]
        if not places:
            wanted = " or ".join(self.learn_roles)
            raise RowError(f"no {wanted} turn: {len(roles)} messages by {', '.join(dict.fromkeys(roles))}")
        learned = {place: talk.weights[place] for place in places[-1 if self.learn == "last" else 0 :]}
        if not any(learned.values()):
            raise RowError("no turn to learn: the weight of all is 0")
        return {place: weight for place, weight in learned.items() if weight}

    @cached_property
    def _known_roles(self) -> Mapping[str, str]:
        return {**ROLES, **self.roles}

    @cached_property
    def _drafter(self) -> Drafter:
        return Drafter(offset_tokenizer(self.tokenizer, part=self), self.special_in_content)
