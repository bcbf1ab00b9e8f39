"""Prompt and response rows, without a template: bos if the tokenizer adds it, prompt, response, eos."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

import attrs

from ike_core.examples import AnyExample, Example, Segment, Skip
from ike_core.interfaces import Record, Tokenizer
from ike_data.drafter import Drafter, Special
from ike_data.drafts import Plan, carry_out
from ike_data.exchanges import EXCHANGES, read_exchange
from ike_data.row_columns import check_known, renamed, riding, weight
from ike_data.row_error import RowError
from ike_data.shapes import name_of, shape_of
from ike_data.tokenizers import offset_tokenizer

KNOWN = (*(name for shape in EXCHANGES.values() for one_of in shape.columns for name in one_of), "input", "weight")
"""Every column that a row with a prompt and a response may have."""


@attrs.frozen
class InstructionProcessor:
    """A row with a prompt and a response to one example; the response and the eos are learned.

    Both are encoded as one text. A token that holds characters of both counts as the response's: it is what the model
    must say after the last token that is the prompt's alone. The row's own `weight` is obeyed.
    """

    tokenizer: Tokenizer
    shape: Literal["auto", "prompt_completion", "question_answer", "alpaca"] = "auto"
    """What a row looks like; 'auto': the one shape that it fits. The summary tells which."""
    columns: Mapping[str, str] = attrs.field(factory=dict)
    """Known column -> what the rows call it: { prompt = "query" }, 'outer.inner' for a nested one."""
    special_in_content: Special = "text"
    """A row's own text that spells a control token is read as 'text', or the row is a 'skip', or 'allow': it is one."""
    fields: tuple[str, ...] = ()
    """Columns that ride along in the example's `fields`."""

    def __attrs_post_init__(self) -> None:
        check_known(self.columns, KNOWN)

    def process(self, record: Record) -> Iterable[AnyExample | Skip]:
        return self.process_block([record])[0]

    def process_block(self, records: Sequence[Record]) -> list[list[AnyExample | Skip]]:
        """What `process` yields for each record."""
        return carry_out([self._plan(record) for record in records], self._drafter.tokenizer)

    def shape_of(self, record: Record) -> str:
        """The name of the shape that a row is read as; '': none."""
        return name_of(record, self.columns, self.shape, EXCHANGES)

    def _plan(self, record: Record) -> Plan | Skip:
        try:
            row = renamed(record, self.columns)
            draft = self._drafter.text(*read_exchange(row, shape_of(row, self.shape, EXCHANGES).name))
            own, fields = weight(row), riding(record, self.fields)
        except RowError as reason:
            return Skip(str(reason))

        def build(segments: Sequence[Segment]) -> list[AnyExample]:
            return [Example(tuple(segments), weight=own, fields=fields, notes=draft.notes)]

        return Plan((draft,), build)

    @cached_property
    def _drafter(self) -> Drafter:
        return Drafter(offset_tokenizer(self.tokenizer, part=self), self.special_in_content)
