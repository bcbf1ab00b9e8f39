"""Which rows made a step's loss not finite: its examples again, one by one, without gradient."""

import math
from typing import TYPE_CHECKING

from ike_core.examples import AnyExample
from ike_core.feed import MicroBatch, Step

if TYPE_CHECKING:
    from ike_core.assembly import TrainingParts

SHOWN = 5
"""Rows that the message names."""


def find_rows(parts: "TrainingParts", step: Step) -> str:
    """Collective: a phrase that names the rows, over all ranks."""
    if parts.is_coupled:
        sources = [example.source for example in step.examples]
        return f"the loss couples the step's {len(sources)} rows: {_listed(sources)}"
    mine = [example for micro in step.micro_batches for example in micro.examples]
    most = max(parts.world.gather(len(mine)))
    found = []
    with parts.engine.evaluating():
        for number in range(most):  # as many forwards on every rank, as ZeRO-3 needs them
            rows = (mine[number],) if number < len(mine) else ()
            if not math.isfinite(_loss(parts, step, rows, number)) and rows:
                found.append(rows[0].source)
    bad = [source for sources in parts.world.gather(found) for source in sources]
    if bad:
        return f"the loss is not finite on {_listed(bad)}"
    return f"the loss is finite on each of its {step.size} rows alone, so it is the gradient that overflows"


def _loss(parts: "TrainingParts", step: Step, rows: tuple[AnyExample, ...], number: int) -> float:
    micro = MicroBatch(parts.feed.batches.collate(rows), rows, ())
    context = parts.context(step.step, rows, number, training=False)
    output = parts.forward(parts.engine.model, parts.engine.place(micro.batch), context)
    return math.fsum(coefficient * float(mean.total) for coefficient, mean in output.terms)


def _listed(sources: list[str]) -> str:
    more = f" and {len(sources) - SHOWN} more" if len(sources) > SHOWN else ""
    return ", ".join(sources[:SHOWN]) + more
