"""Evaluations of a run: every example once, whatever the ranks and the cut."""

from collections.abc import Callable
from typing import Any, Protocol

import attrs

from ike_core.answers import Answers
from ike_core.config.sections import Every
from ike_core.context import Context
from ike_core.examples import AnyExample
from ike_core.feed import Batches, MicroBatch
from ike_core.interfaces import Dataset, Engine
from ike_core.step_output import StepOutput
from ike_core.tally import Tally, read

ContextOf = Callable[[tuple[AnyExample, ...], int], Context]
"""(examples, number of the micro-batch on this rank) -> its context, not training."""
Forward = Callable[[Any, Any, Context], StepOutput]


class Evaluation(Protocol):
    """One named evaluation."""

    @property
    def name(self) -> str:
        """What its values are logged under: `valid/<name>` or `evaluate/<name>`."""
        ...

    @property
    def every(self) -> Every | None:
        """None: cadence.evaluate."""
        ...

    def run(self, engine: Engine, context_of: ContextOf) -> dict[str, float]:
        """Collective."""
        ...


@attrs.frozen
class ObjectiveEvaluation:
    """The loss and metrics of an objective over a dataset."""

    name: str
    every: Every | None
    dataset: Dataset
    forward: Forward
    batches: Batches
    examples_at_once: int
    """Examples that are cut together; more only balances better."""

    def run(self, engine: Engine, context_of: ContextOf) -> dict[str, float]:
        tally, number = Tally(), 0
        with engine.evaluating():
            for first in range(0, len(self.dataset), self.examples_at_once):
                for micro in self._chunk(first):
                    context = context_of(micro.examples, number)
                    output = self.forward(engine.model, engine.place(micro.batch), context)
                    number += 1
                    if not micro.is_filler:
                        tally.add(output)
        return read(tally.terms, tally.metrics, None, engine.world)

    def _chunk(self, first: int) -> list[MicroBatch]:
        indices = range(first, min(first + self.examples_at_once, len(self.dataset)))
        return self.batches.make(lambda i: self.dataset[indices[i]], [self.dataset.size(i) for i in indices])


@attrs.frozen
class CoupledEvaluation:
    """The loss of a StepObjective, which couples the examples of a step: over steps of the training's size."""

    name: str
    every: Every | None
    dataset: Dataset
    coupled: Callable[[Engine, list[AnyExample], ContextOf, int], StepOutput]
    """(engine, a step's examples, contexts, number of the first micro-batch) -> the loss over all of them."""
    examples_per_step: int

    def run(self, engine: Engine, context_of: ContextOf) -> dict[str, float]:
        tally = Tally()
        with engine.evaluating():
            for first in range(0, len(self.dataset), self.examples_per_step):
                last = min(first + self.examples_per_step, len(self.dataset))
                tally.add(self.coupled(engine, [self.dataset[i] for i in range(first, last)], context_of, first))
        if not engine.world.is_first:  # every rank has the whole: one of them says it
            tally = Tally()
        return read(tally.terms, tally.metrics, None, engine.world)


@attrs.frozen
class TaskEvaluation:
    """The metrics of an inference task over records."""

    name: str
    every: Every | None
    answers: Answers

    def run(self, engine: Engine, context_of: ContextOf) -> dict[str, float]:
        rows = [row for chunk in self.answers.rows(engine, context_of) for row in chunk]
        values = self.answers.metrics(rows) if engine.world.is_first else {}
        return dict(engine.world.broadcast(values))
