"""Raw text for continued pretraining: bos if the tokenizer adds it, the text, eos; long ones in windows."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import attrs

from ike_core.examples import AnyExample, Example, Segment, Skip
from ike_core.interfaces import Record, Tokenizer
from ike_data.drafter import Drafter, Special
from ike_data.drafts import Plan, carry_out
from ike_data.row_columns import check_known, names, renamed, riding, text, weight
from ike_data.row_error import RowError
from ike_data.tokenizers import offset_tokenizer

KNOWN = ("text", "weight")
"""Every column that a row with a text may have."""


@attrs.frozen
class TextProcessor:
    """A row's text to one example, or to one a window; all of it is learned.

    With windows every token is learned once: the first of a text has nothing before it to be read from, and the first
    `overlap` of each later window are read again, not learned again.
    """

    tokenizer: Tokenizer
    window: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Tokens of an example at most, bos and eos counted; 0: a text is one example, however long."""
    overlap: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """Tokens of the window before that each window starts with; below `window`."""
    columns: Mapping[str, str] = attrs.field(factory=dict)
    """Known column -> what the rows call it: { text = "content" }, 'outer.inner' for a nested one."""
    special_in_content: Special = "text"
    """A row's own text that spells a control token is read as 'text', or the row is a 'skip', or 'allow': it is one."""
    fields: tuple[str, ...] = ()
    """Columns that ride along in the example's `fields`."""

    def __attrs_post_init__(self) -> None:
        check_known(self.columns, KNOWN)
        if self.window and self.overlap >= self.window:
            raise ValueError(f"overlap = {self.overlap} leaves nothing new in a window of {self.window}; make it less")

    def process(self, record: Record) -> Iterable[AnyExample | Skip]:
        return self.process_block([record])[0]

    def process_block(self, records: Sequence[Record]) -> list[list[AnyExample | Skip]]:
        """What `process` yields for each record."""
        return carry_out([self._plan(record) for record in records], self._drafter.tokenizer)

    def _plan(self, record: Record) -> Plan | Skip:
        try:
            row = renamed(record, self.columns)
            if "text" not in row:
                raise RowError(f"no column 'text': the row has {names(row)}")
            draft = self._drafter.text("", text(row, "text"))
            if not draft.text.strip():
                raise RowError("empty text")
            own, fields = weight(row), riding(record, self.fields)
        except RowError as reason:
            return Skip(str(reason))

        def build(segments: Sequence[Segment]) -> list[AnyExample]:
            parts = list(self._windows(segments[0].tokens))
            notes = (draft.notes, *[()] * (len(parts) - 1))  # a row is altered once
            return [
                Example((part,), weight=own, fields=fields, notes=said) for part, said in zip(parts, notes, strict=True)
            ]

        return Plan((draft,), build)

    def _windows(self, tokens: Sequence[int]) -> Iterator[Segment]:
        size = self.window or len(tokens)
        start = 0
        while True:
            part = array("i", tokens[start : start + size])
            read = min(self.overlap, len(part)) if start else 1
            yield Segment(part, array("f", [0.0]) * read + array("f", [1.0]) * (len(part) - read))
            if start + size >= len(tokens):
                return
            start += size - self.overlap

    @cached_property
    def _drafter(self) -> Drafter:
        return Drafter(offset_tokenizer(self.tokenizer, part=self), self.special_in_content)
