"""Peak learning rates, and what a schedule makes of them."""

from collections.abc import Mapping
from typing import Any


def peaks_of(optimizer: Any) -> list[float]:
    """Each group's peak: the rate it was built with."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def set_learning_rates(optimizer: Any, peaks: list[float], factors: Mapping[str, float]) -> float:
    """Each group's rate to its factor x its peak; returns the first group's, which is what logs show."""
    for group, peak in zip(optimizer.param_groups, peaks, strict=True):
        group["lr"] = peak * factors.get(group.get("name", ""), factors[""])
    return float(optimizer.param_groups[0]["lr"])
