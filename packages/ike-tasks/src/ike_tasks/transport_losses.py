"""AOT: one distribution of rewards pushed above another, quantile by quantile.  Melnyk et al. 2024, arXiv:2406.05882

E pairs of the step, M quantiles that two weighted samples of E have together. With equal weights they are E, as in the
paper: the i-th of one sample beside the i-th of the other, both sorted.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ike_tasks.pair_losses import Margin, wide


def aot(
    policy_E: Tensor,
    reference_E: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
    margin: Margin = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """Paired: `policy_E` are log pi(y_c|x) - log pi(y_r|x), `reference_E` the same of the reference.  -> [], a mean"""
    return _above(beta * wide(policy_E) - margin, beta * wide(reference_E), label_smoothing, weights)


def aot_unpaired(
    chosen_E: Tensor,
    rejected_E: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
    margin: Margin = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """Of log-ratios to the reference, each sorted on its own: which goes with which is not used.  -> [], a mean"""
    return _above(beta * wide(chosen_E) - margin, beta * wide(rejected_E), label_smoothing, weights)


def _above(upper_E: Tensor, lower_E: Tensor, smoothing: float, weights_E: Tensor | None) -> Tensor:
    weights_E = torch.ones_like(upper_E) if weights_E is None else weights_E.to(upper_E.dtype)
    gaps_M, shares_M = quantile_gaps(upper_E, lower_E, weights_E)
    losses_M = -(1 - smoothing) * logsigmoid(gaps_M) - smoothing * logsigmoid(-gaps_M)
    return (losses_M * shares_M).sum()


def quantile_gaps(upper_E: Tensor, lower_E: Tensor, weights_E: Tensor) -> tuple[Tensor, Tensor]:
    """Differences of the quantiles of two samples, [M], and the share of the whole that each stands for, [M]."""
    sorted_upper_E, upper_ends_E = _quantiles(upper_E, weights_E)
    sorted_lower_E, lower_ends_E = _quantiles(lower_E, weights_E)
    ends_M = torch.cat([upper_ends_E, lower_ends_E]).sort().values
    shares_M = ends_M.diff(prepend=ends_M.new_zeros(1))
    middles_M = ends_M - shares_M / 2
    last = len(upper_E) - 1
    upper_M = sorted_upper_E.index_select(0, torch.searchsorted(upper_ends_E, middles_M).clamp(max=last))
    lower_M = sorted_lower_E.index_select(0, torch.searchsorted(lower_ends_E, middles_M).clamp(max=last))
    return upper_M - lower_M, shares_M


def _quantiles(values_E: Tensor, weights_E: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted, and up to which share of the whole each reaches."""
    values_E, order_E = values_E.sort()
    ends_E = weights_E.index_select(0, order_E).cumsum(0)
    return values_E, ends_E / ends_E[-1]
