"""An inference task over records: rows in input order, each exactly once, over any number of ranks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import attrs

from ike_core.batch import Vocabulary
from ike_core.context import Context
from ike_core.cutting import Ceiling, cut
from ike_core.errors import ConfigError
from ike_core.examples import AnyExample, Example, Skip
from ike_core.feed import MicroBatch
from ike_core.interfaces import Engine, InferenceTask, Lengthens, Record

RECORDS_AT_ONCE = 64
"""A rank's share of the records that are prepared, cut and answered together."""
SKIPPED = "skipped"
"""Column of a row that got no answer: the reason."""

Row = dict[str, Any]
ContextOf = Callable[[tuple[AnyExample, ...], int], Context]
"""(examples, number of the micro-batch on this rank) -> its context."""


@attrs.frozen
class Answers:
    """What a task says to every record. Nothing is held but the records that are under way."""

    task: InferenceTask
    records: Callable[[], Iterable[tuple[str, Record]]]
    """Opens the files anew: (source, record), the same on every rank."""
    vocabulary: Vocabulary
    ceiling: Ceiling
    positions: int
    """Tokens that the model has positions for; 0: unknown."""

    @property
    def new_tokens(self) -> int:
        """What an answer may add to its prompt."""
        return self.task.max_new_tokens if isinstance(self.task, Lengthens) else 0

    def rows(self, engine: Engine, context_of: ContextOf) -> Iterator[list[Row]]:
        """Collective: the record's own columns and the task's, in input order, the same on every rank."""
        world = engine.world
        records = iter(self.records())
        first = number = 0
        while chunk := list(islice(records, RECORDS_AT_ONCE * world.size)):
            prepared = [self._prepare(first + i, chunk[i]) for i in range(world.rank, len(chunk), world.size)]
            micro_batches = self._cut(prepared, engine)
            said: dict[int, Row] = {row.index: {SKIPPED: row.reason} for row in prepared if isinstance(row, _Skipped)}
            with engine.evaluating():
                for micro in micro_batches:
                    said.update(self._ask(engine, micro, context_of(micro.examples, number)))
                    number += 1
            shares = world.gather([said[i] for i in sorted(said)])
            yield [_joined(*chunk[i], shares[i % world.size][i // world.size]) for i in range(len(chunk))]
            first += len(chunk)

    def _prepare(self, index: int, record: tuple[str, Record]) -> "Example | _Skipped":
        example = self.task.prepare(record[1])
        if isinstance(example, Skip):
            return _Skipped(index, example.reason)
        most = min(self.ceiling.tokens, self.positions or self.ceiling.tokens)
        if len(example) + self.new_tokens > most:
            answer = f" and max_new_tokens = {self.new_tokens}" if self.new_tokens else ""
            limit = (
                f"batch.tokens_per_device = {most}" if most == self.ceiling.tokens else f"the model's {most} positions"
            )
            return _Skipped(index, f"{len(example)} tokens{answer} are more than {limit}")
        return attrs.evolve(example, index=index, source=record[0])

    def _cut(self, prepared: Sequence["Example | _Skipped"], engine: Engine) -> list[MicroBatch]:
        """This rank's micro-batches, as many on every rank where a forward is collective."""
        examples = [row for row in prepared if isinstance(row, Example)]
        groups = cut([len(example) + self.new_tokens for example in examples], 1, self.ceiling)[0] if examples else []
        if engine.gathers:
            most = max(engine.world.gather(len(groups)))
            groups = groups + [[]] * (most - len(groups))
        return [self._micro_batch([examples[position] for position in group]) for group in groups]

    def _micro_batch(self, examples: list[Example]) -> MicroBatch:
        return MicroBatch(self.task.collate(examples, self.vocabulary), tuple(examples), ())

    def _ask(self, engine: Engine, micro: MicroBatch, context: Context) -> dict[int, Row]:
        rows = list(self.task(engine.model, engine.place(micro.batch), context))
        if len(rows) != len(micro.examples):
            raise ConfigError(
                f"{type(self.task).__name__} returned {len(rows)} rows for {len(micro.examples)} examples; "
                "it must return one an example, in the order of the batch"
            )
        return {example.index: dict(row) for example, row in zip(micro.examples, rows, strict=True)}

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """The task's metrics over the rows that were answered, and how many were not."""
        all_rows = list(rows)
        answered = [row for row in all_rows if SKIPPED not in row]
        values = dict(self.task.metrics(answered))
        if len(answered) < len(all_rows):
            values[SKIPPED] = float(len(all_rows) - len(answered))
        return values


@attrs.frozen
class _Skipped:
    index: int
    reason: str


def _joined(source: str, record: Record, row: Row) -> Row:
    taken = sorted(set(record) & {*row, SKIPPED})
    if taken == [SKIPPED]:
        raise ConfigError(
            f"{source} has a column {SKIPPED!r}, where ike says why a record got no answer; rename it in the file"
        )
    if taken:
        raise ConfigError(
            f"{source} has a column {taken[0]!r} of its own, and the task's answer would go into the same; "
            "give the task another column to write"
        )
    return {**record, **row}
