"""Answers that are better or worse than one another, to comparisons: pairs, and scored or ranked lists."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

import attrs

from ike_core.examples import AnyExample, Comparison, Segment, Skip
from ike_core.interfaces import Record, Tokenizer
from ike_data.answers import KNOWN, SHAPES, Choice, read_choice
from ike_data.drafter import Drafter, Special
from ike_data.drafts import Draft, Plan, carry_out
from ike_data.messages import ASSISTANT, ROLES, Talk, check_roles
from ike_data.row_columns import check_known, column, renamed, riding, weight
from ike_data.row_error import RowError
from ike_data.shapes import shape_of
from ike_data.tokenizers import offset_tokenizer
from ike_data.trees import grow


@attrs.frozen
class PreferenceProcessor:
    """A prompt with two or more answers to one Comparison, the best first.

    Answers that have a prompt in common up to where the assistant answers: one that goes with another prompt is no
    comparison, and the row a Skip. Supervised is what the assistant says from there on. The longest common prefix of
    tokens is the trunk, so what answers begin with alike is learned of none.
    """

    tokenizer: Tokenizer
    template: bool = True
    """Whether the tokenizer's chat template renders the answers; false: prompt, answer and eos end to end, as text."""
    shape: Literal["auto", "chosen", "transcript", "scored", "ranked"] = "auto"
    """What a row looks like; 'auto': the one shape that it fits. The summary tells which."""
    columns: Mapping[str, str] = attrs.field(factory=dict)
    """Known column -> what the rows call it: { prompt = "query" }, 'outer.inner' for a nested one."""
    answers: tuple[str, ...] = ()
    """Columns of the answers, where each has one of its own; in place of a column `answers` with a list."""
    scores: tuple[str, ...] = ()
    """Columns of their scores, in the same order. True is better than false."""
    roles: Mapping[str, str] = attrs.field(factory=dict)
    """Name in the rows -> system, developer, user, assistant or tool, on top of those that are known."""
    special_in_content: Special = "text"
    """A row's own text that spells a control token is read as 'text', or the row is a 'skip', or 'allow': it is one."""
    fields: tuple[str, ...] = ()
    """Columns that ride along in the example's `fields`."""

    def __attrs_post_init__(self) -> None:
        check_known(self.columns, KNOWN)
        check_roles(self.roles)
        if self.scores and len(self.scores) != len(self.answers):
            raise ValueError(f"scores has {len(self.scores)} columns, and answers {len(self.answers)}; give one each")

    def process(self, record: Record) -> Iterable[AnyExample | Skip]:
        return self.process_block([record])[0]

    def process_block(self, records: Sequence[Record]) -> list[list[AnyExample | Skip]]:
        """What `process` yields for each record."""
        return carry_out([self._plan(record) for record in records], self._drafter.tokenizer)

    def shape_of(self, record: Record) -> str:
        """The name of the shape that a row is read as; '': none."""
        try:
            return shape_of(self._row(record), self.shape, SHAPES).name
        except RowError:
            return ""

    def _plan(self, record: Record) -> Plan | Skip:
        try:
            row = self._row(record)
            choice = read_choice(row, self.shape, {**ROLES, **self.roles}, is_text=not self.template)
            drafts = self._drafts(choice)
            own, fields = weight(row), riding(record, self.fields)
        except RowError as reason:
            return Skip(str(reason))
        notes = tuple(dict.fromkeys(note for draft in drafts for note in draft.notes))

        def build(segments: Sequence[Segment]) -> list[AnyExample]:
            trunk, branches = grow(segments)
            branches = tuple(map(_scored, branches, choice.scores or (None,) * len(branches)))
            return [Comparison(trunk, branches, margin=choice.margin, weight=own, fields=fields, notes=notes)]

        return Plan(drafts, build)

    def _row(self, record: Record) -> Record:
        row = renamed(record, self.columns)
        for known, columns in (("answers", self.answers), ("scores", self.scores)):
            if columns:
                row = {**row, known: [column(record, name) for name in columns]}
        return row

    def _drafts(self, choice: Choice) -> tuple[Draft, ...]:
        if not self.template:
            return tuple(self._drafter.text(prompt, answer) for prompt, answer in choice.texts)
        shared = _shared(choice.talks)
        return tuple(self._draft(talk, shared) for talk in choice.talks)

    def _draft(self, talk: Talk, shared: int) -> Draft:
        places = range(shared, len(talk.messages))
        answers = [place for place in places if talk.messages[place]["role"] == ASSISTANT]
        return self._drafter.talk(talk, {place: talk.weights[place] for place in answers if talk.weights[place]})

    @cached_property
    def _drafter(self) -> Drafter:
        return Drafter(offset_tokenizer(self.tokenizer, part=self), self.special_in_content)


def _scored(branch: Segment, score: float | None) -> Segment:
    return attrs.evolve(branch, score=score)


def _shared(talks: Sequence[Talk]) -> int:
    """How many messages are the prompt: those that all begin with, one that each answers by itself at the most.

    Raises RowError where they part at what someone else says.
    """
    shared = 0
    for messages in zip(*(talk.messages for talk in talks), strict=False):
        if any(message != messages[0] for message in messages):
            break
        shared += 1
    if any(shared == len(talk.messages) for talk in talks):  # one answer goes on where another has ended
        turns = [place for place in range(shared) if talks[0].messages[place]["role"] == ASSISTANT]
        if not turns:
            raise RowError(f"no assistant turn: an answer is {shared} messages of others")
        shared = turns[-1]
    for talk in talks:
        role = talk.messages[shared]["role"]
        if role != ASSISTANT:
            raise RowError(f"no prompt in common: the answers part at messages[{shared}], which a {role} says")
    return shared
