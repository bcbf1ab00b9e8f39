"""Means over all steps so far: what an objective remembers."""

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor

from ike_core.context import Context


def _nothing() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


@attrs.frozen(eq=False)
class RunningMean:
    """Of everything it was given, each with its weight. It stays on the device, and nothing waits for it."""

    total: Tensor = attrs.field(factory=_nothing)
    """Scalar, float64."""
    weight: Tensor = attrs.field(factory=_nothing)
    """Scalar, float64."""

    def after(self, values: Tensor, weights: Tensor) -> "RunningMean":
        """With these as well."""
        values, weights = values.detach().double(), weights.double()
        before = _moved(self.total, values), _moved(self.weight, values)
        return RunningMean(before[0] + (values * weights).sum(), before[1] + weights.sum())

    @property
    def value(self) -> Tensor:
        """The mean; 0 of nothing."""
        return self.total / torch.where(self.weight > 0, self.weight, 1.0)


def _moved(scalar: Tensor, like: Tensor) -> Tensor:
    """Once, after a start: from then on it is there."""
    if scalar.device == like.device:
        return scalar
    return (scalar.pin_memory() if like.is_cuda else scalar).to(like.device, non_blocking=True)


Weighed = tuple[Tensor, Tensor]
"""Values, and a weight each."""


@attrs.define
class RewardShift:
    """Half way between the mean rewards of good and of bad answers, over all steps so far."""

    good: RunningMean = attrs.field(factory=RunningMean)
    bad: RunningMean = attrs.field(factory=RunningMean)

    def at(self, good: Weighed, bad: Weighed, context: Context) -> Tensor:
        """With this step's rewards, which are kept while training alone; [], a constant.

        An evaluation goes by what was learned from; before the first update that is but its own rewards.
        """
        with_good, with_bad = self.good.after(*good), self.bad.after(*bad)
        if context.training:
            self.good, self.bad = with_good, with_bad
        elif context.step:
            with_good, with_bad = self.good, self.bad
        return _middle(with_good, with_bad).to(good[0].device)

    def state(self) -> Mapping[str, Any]:
        return {
            f"{name}_{key}": value
            for name, mean in (("good", self.good), ("bad", self.bad))
            for key, value in (("total", mean.total), ("weight", mean.weight))
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.good = RunningMean(state["good_total"], state["good_weight"])
        self.bad = RunningMean(state["bad_total"], state["bad_weight"])


def _middle(one: RunningMean, other: RunningMean) -> Tensor:
    """The one mean where the other has seen nothing."""
    has_one, has_other = (one.weight > 0).double(), (other.weight > 0).double()
    return (one.value * has_one + other.value * has_other) / (has_one + has_other).clamp(min=1)
