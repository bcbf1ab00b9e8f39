"""Answers with a yes or a no to labelled examples."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import attrs

from ike_core.examples import AnyExample, LabelledExample, Segment, Skip
from ike_core.interfaces import Record, Tokenizer
from ike_data.drafter import Drafter, Special
from ike_data.drafts import Draft, Plan, carry_out
from ike_data.exchanges import EXCHANGES, read_exchange
from ike_data.messages import ASSISTANT, ROLES, check_roles
from ike_data.row_columns import check_known, names, renamed, riding, weight
from ike_data.row_error import RowError
from ike_data.shapes import CONVERSATIONS, name_of, shape_of
from ike_data.talks import KNOWN as TALK_COLUMNS
from ike_data.talks import read_row
from ike_data.tokenizers import offset_tokenizer

KNOWN = (*TALK_COLUMNS, "label")
"""Every column that a row with feedback may have."""


@attrs.frozen
class FeedbackProcessor:
    """A conversation whose last answer someone found good or bad to one LabelledExample.

    `label` is true or false, or 1 or 0. Supervised is the last answer with its end-of-turn.
    """

    tokenizer: Tokenizer
    template: bool = True
    """Whether the tokenizer's chat template renders the row; false: prompt, answer and eos end to end, as text."""
    shape: Literal["auto", "messages", "sharegpt", "alpaca", "prompt_completion", "question_answer", "transcript"] = (
        "auto"
    )
    """What a row looks like, its `label` aside; 'auto': the one shape that it fits. The summary tells which."""
    columns: Mapping[str, str] = attrs.field(factory=dict)
    """Known column -> what the rows call it: { label = "thumbs_up" }, 'outer.inner' for a nested one."""
    roles: Mapping[str, str] = attrs.field(factory=dict)
    """Name in the rows -> system, developer, user, assistant or tool, on top of those that are known."""
    special_in_content: Special = "text"
    """A row's own text that spells a control token is read as 'text', or the row is a 'skip', or 'allow': it is one."""
    fields: tuple[str, ...] = ()
    """Columns that ride along in the example's `fields`."""

    def __attrs_post_init__(self) -> None:
        check_known(self.columns, KNOWN)
        check_roles(self.roles)

    def process(self, record: Record) -> Iterable[AnyExample | Skip]:
        return self.process_block([record])[0]

    def process_block(self, records: Sequence[Record]) -> list[list[AnyExample | Skip]]:
        """What `process` yields for each record."""
        return carry_out([self._plan(record) for record in records], self._drafter.tokenizer)

    def shape_of(self, record: Record) -> str:
        """The name of the shape that a row is read as; '': none."""
        return name_of(record, self.columns, self.shape, CONVERSATIONS if self.template else EXCHANGES)

    def _plan(self, record: Record) -> Plan | Skip:
        try:
            row = renamed(record, self.columns)
            desirable = _label(row)
            draft = self._draft(row)
            own, fields = weight(row), riding(record, self.fields)
        except RowError as reason:
            return Skip(str(reason))

        def build(segments: Sequence[Segment]) -> list[AnyExample]:
            prompt, answer = _split(segments[0])
            return [LabelledExample(prompt, answer, desirable, weight=own, fields=fields, notes=draft.notes)]

        return Plan((draft,), build)

    def _draft(self, row: Record) -> Draft:
        if not self.template:
            return self._drafter.text(*read_exchange(row, shape_of(row, self.shape, EXCHANGES).name))
        talk = read_row(row, self.shape, {**ROLES, **self.roles})
        last = len(talk.messages) - 1
        if talk.messages[last]["role"] != ASSISTANT:
            raise RowError(f"no answer to judge: the last message is a {talk.messages[last]['role']}'s")
        return self._drafter.talk(talk, {last: 1.0})

    @cached_property
    def _drafter(self) -> Drafter:
        return Drafter(offset_tokenizer(self.tokenizer, part=self), self.special_in_content)


def _label(record: Record) -> bool:
    if "label" not in record:
        raise RowError(f"no label: the row has {names(record)}")
    label: Any = record["label"]
    if not isinstance(label, bool | int) or label not in (0, 1):
        raise RowError(f"a label that is neither true nor false: it is {label!r}")
    return bool(label)


def _split(whole: Segment) -> tuple[Segment, Segment]:
    """Before and from the first supervised token on."""
    border = next((place for place, own in enumerate(whole.weights) if own), len(whole))
    prompt, answer = slice(border), slice(border, None)
    return (
        Segment(whole.tokens[prompt], whole.weights[prompt]),
        Segment(whole.tokens[answer], whole.weights[answer]),
    )
