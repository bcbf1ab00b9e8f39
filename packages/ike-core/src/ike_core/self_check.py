"""Once, before the first step: does cutting a batch change what the objective says?

A bare scalar, or a weight of the user's own, may be a mean over something else than is divided by; then the loss
depends on how many ranks there are. Two examples are computed together and apart, without gradient.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ike_core.batch import Batch
from ike_core.errors import ConfigError
from ike_core.examples import AnyExample
from ike_core.feed import Batches
from ike_core.interfaces import Engine
from ike_core.step_output import StepOutput

TOLERANCE = 1e-3
"""Relative; rows of other lengths in one batch already round differently (bf16: 2e-2)."""
TOLERANCE_BF16 = 2e-2

ContextOf = Callable[[tuple[AnyExample, ...], int], Any]


def check_cut(
    forward: Callable[[Any, Batch, Any], StepOutput],
    engine: Engine,
    batches: Batches,
    examples: Sequence[AnyExample],
    context_of: ContextOf,
    *,
    half: bool,
) -> str:
    """Collective under ZeRO-3. '' where the cut changes nothing, else one line with the ratio and what to return.

    ConfigError for a term whose weights are not those of the batch.
    """
    if len(examples) < 2:
        return ""
    parts = [tuple(examples), *((example,) for example in examples)]
    with engine.evaluating():
        whole, *halves = [_run(forward, engine, batches, part, context_of) for part in parts]
    for name, own, counted in whole[1]:
        if not math.isclose(own, counted, rel_tol=1e-6):
            raise ConfigError(
                f"a loss per {name!r} came with the weight {own:g}, and the micro-batch weighs {counted:g}; "
                f"return Mean(total, batch.weights[{name!r}], per={name!r})"
            )
    loss = _divided([whole])
    cut = _divided(halves)
    if not math.isfinite(loss) and not math.isfinite(cut):
        return ""  # engine.on_nonfinite has the say, and names the rows
    off = abs(cut / loss - 1) if loss else abs(cut)
    if off <= (TOLERANCE_BF16 if half else TOLERANCE):
        return ""
    return (
        f"warning: cut in two, a batch's loss is {cut / loss if loss else math.inf:.3f} times that of the whole, so "
        "the loss depends on the number of ranks; return (total, weight) or Mean(total, weight, per=...) instead of a "
        "mean over something else than supervised tokens (where there are labels) or examples"
    )


def _run(
    forward: Callable[..., StepOutput],
    engine: Engine,
    batches: Batches,
    examples: tuple[AnyExample, ...],
    context_of: ContextOf,
) -> tuple[list[tuple[float, float]], list[tuple[str, float, float]]]:
    """(coefficient x total, batch's weight) a term, and (per, own weight, batch's weight) a term."""
    batch = engine.place(batches.collate(examples))
    output = forward(engine.model, batch, context_of(examples, 0))
    terms, weights = [], []
    for coefficient, mean in output.terms:
        if mean.per not in batch.weights:
            raise ConfigError(
                f"a loss per {mean.per!r} can't be divided: the batch counts {sorted(batch.weights)}; "
                "give Mean(per=...) one of these, or let collate count it"
            )
        terms.append((coefficient * float(mean.total), batch.weights[mean.per]))
        weights.append((mean.per, float(mean.weight), batch.weights[mean.per]))
    return terms, weights


def _divided(runs: Sequence[Any]) -> float:
    loss = 0.0
    for parts in zip(*(terms for terms, _ in runs), strict=True):
        loss += math.fsum(part[0] for part in parts) / math.fsum(part[1] for part in parts)
    return loss
