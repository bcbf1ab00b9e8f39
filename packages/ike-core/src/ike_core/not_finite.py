"""A step that is not finite: which rows made it so (its examples again, one by one), and whether the run goes on."""

import math
from typing import TYPE_CHECKING

from ike_core.errors import TrainingError
from ike_core.examples import AnyExample
from ike_core.feed import MicroBatch, Step
from ike_core.interfaces import StepReport

if TYPE_CHECKING:
    from ike_core.assembly import TrainingParts

SHOWN = 5
"""Rows that the message names."""


def tell(parts: "TrainingParts", step: Step, report: StepReport, *, skipped: int) -> None:
    """Collective: stops with the rows named, or skips within the budget. The weights are as before the step.

    `skipped`: steps that were such, this one included.
    """
    policy, norm = parts.policy, float(report.update.grad_norm)
    what = f"step {report.step}: the gradient norm is {norm}, so the update was not kept; {find_rows(parts, step)}"
    if policy.on_nonfinite == "stop":
        raise TrainingError(f'{what}; engine.on_nonfinite = "skip" would go on without such steps')
    if skipped > policy.skip_budget:
        raise TrainingError(f"{what}; {skipped} steps were such, and engine.skip_budget = {policy.skip_budget}")
    parts.trackers.say(f"{what}; skipped, {skipped} of engine.skip_budget = {policy.skip_budget}")


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
