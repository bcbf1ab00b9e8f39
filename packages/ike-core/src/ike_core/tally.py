"""Means of a step or an evaluation, added up on the device and read when someone asks."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ike_core.interfaces import World
from ike_core.mean import Mean
from ike_core.step_output import StepOutput


@attrs.define
class Tally:
    """This rank's sums. Nothing waits for the device before `read`."""

    terms: list[tuple[float, Mean]] = attrs.field(factory=list)
    metrics: dict[str, Mean] = attrs.field(factory=dict)

    def add(self, output: StepOutput) -> None:
        detached = [(coefficient, _detached(mean)) for coefficient, mean in output.terms]
        if self.terms:
            pairs = zip(self.terms, detached, strict=True)
            self.terms = [(coefficient, old + new) for (coefficient, old), (_, new) in pairs]
        else:
            self.terms = detached
        for name, mean in output.metrics.items():
            new = _detached(mean)
            self.metrics[name] = self.metrics[name] + new if name in self.metrics else new


def read(
    terms: Sequence[tuple[float, Mean]], metrics: Mapping[str, Mean], weights: Mapping[str, float] | None, world: World
) -> dict[str, float]:
    """Collective: the loss and the metrics over all ranks, in float64.

    A term of the loss is divided by `weights[per]`, of the whole step; by its own summed weight where that is None
    (an evaluation). A rank without a metric, or with filler alone, counts as a weight of 0.
    """
    loss = [[coefficient, float(mean.total), float(mean.weight), mean.per] for coefficient, mean in terms]
    means = {name: [float(mean.total), float(mean.weight)] for name, mean in metrics.items()}
    rows = world.gather([loss, means])
    values = {"loss": _loss([row[0] for row in rows if row[0]], weights)}
    for name in dict.fromkeys(name for row in rows for name in row[1]):
        parts = [row[1][name] for row in rows if name in row[1]]
        values[name] = _divide(math.fsum(total for total, _ in parts), math.fsum(weight for _, weight in parts))
    return values


def _loss(ranks: Sequence[Sequence[Any]], weights: Mapping[str, float] | None) -> float:
    loss = 0.0 if ranks else math.nan
    for parts in zip(*ranks, strict=True):
        coefficient, *_, per = parts[0]
        weight = math.fsum(part[2] for part in parts) if weights is None else weights[per]
        loss += coefficient * _divide(math.fsum(part[1] for part in parts), weight)
    return loss


def _divide(total: float, weight: float) -> float:
    return total / weight if weight else math.nan


def _detached(mean: Mean) -> Mean:
    return attrs.evolve(mean, total=_value(mean.total), weight=_value(mean.weight))


def _value(value: Any) -> Any:
    return value if isinstance(value, int | float) else value.detach()
