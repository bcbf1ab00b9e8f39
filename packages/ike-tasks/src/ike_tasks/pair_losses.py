"""Losses over pairs of answers, one formula a function: for the objectives here, and for anyone's loop.

E pairs. `chosen_E` and `rejected_E` are log-ratios log pi(y|x) - log pi_ref(y|x) of the two answers, unless a function
says otherwise; all return one loss a pair, [E], in float32 at least, whatever goes in. `beta` scales log-ratios to
rewards; `margin` (a number or [E], in rewards) is by how much the chosen answer is to be better: it is taken off its
reward. None divides by the number of pairs.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Margin = Tensor | float


def wide(values: Tensor) -> Tensor:
    """In float32, or what is wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _in_float32(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(loss)
    def widened(*tensors: Tensor, **settings: Any) -> Tensor:
        wides = {name: wide(value) if isinstance(value, Tensor) else value for name, value in settings.items()}
        return loss(*map(wide, tensors), **wides)

    return widened


def _gap(chosen_E: Tensor, rejected_E: Tensor, beta: float, margin: Margin) -> Tensor:
    """By how much the chosen answer's reward is the larger, past the margin."""
    return beta * (chosen_E - rejected_E) - margin


@_in_float32
def sigmoid(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, margin: Margin = 0.0) -> Tensor:
    """DPO: -log sigmoid(beta (c - r)).  Rafailov et al. 2023, eq. 7, arXiv:2305.18290

    With a margin: Amini et al. 2024 (ODPO), eq. 4, arXiv:2402.10571.
    """
    return -logsigmoid(_gap(chosen_E, rejected_E, beta, margin))


@_in_float32
def hinge(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, margin: Margin = 0.0) -> Tensor:
    """max(0, 1 - beta (c - r)).  Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425

    With log-ratios in the place of log-probabilities: Liu et al. 2023 (RSO), arXiv:2309.06657.
    """
    return (1 - _gap(chosen_E, rejected_E, beta, margin)).relu()


@_in_float32
def ipo(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, margin: Margin = 0.0) -> Tensor:
    """(c - r - 1 / (2 beta))^2.  Azar et al. 2023, eq. 17, arXiv:2310.12036

    `beta` is the paper's tau. Its authors average log-ratios over an answer's tokens: hand such in.
    """
    return (chosen_E - rejected_E - margin - 1 / (2 * beta)).square()


@_in_float32
def robust(
    chosen_E: Tensor, rejected_E: Tensor, *, beta: float, label_smoothing: float, margin: Margin = 0.0
) -> Tensor:
    """((1 - e) l(h) - e l(-h)) / (1 - 2 e), l = -log sigmoid: unbiased where a share e of the labels is flipped.

    Chowdhury et al. 2024 (rDPO), eq. 12, arXiv:2403.00409.
    """
    gap_E = _gap(chosen_E, rejected_E, beta, margin)
    kept_E, flipped_E = -logsigmoid(gap_E), -logsigmoid(-gap_E)
    return ((1 - label_smoothing) * kept_E - label_smoothing * flipped_E) / (1 - 2 * label_smoothing)


@_in_float32
def conservative(
    chosen_E: Tensor, rejected_E: Tensor, *, beta: float, label_smoothing: float, margin: Margin = 0.0
) -> Tensor:
    """Cross-entropy with labels smoothed by e: (1 - e) l(h) + e l(-h).  Mitchell 2023 (cDPO), eq. 3, a note on DPO"""
    gap_E = _gap(chosen_E, rejected_E, beta, margin)
    return -(1 - label_smoothing) * logsigmoid(gap_E) - label_smoothing * logsigmoid(-gap_E)


@_in_float32
def exo_pair(
    chosen_E: Tensor, rejected_E: Tensor, *, beta: float, label_smoothing: float, margin: Margin = 0.0
) -> Tensor:
    """KL of (q, 1 - q), q = sigmoid(h), from (1 - e, e).  Ji et al. 2024 (EXO), eq. 16, arXiv:2402.00856"""
    gap_E = _gap(chosen_E, rejected_E, beta, margin)
    better_E, worse_E = logsigmoid(gap_E), logsigmoid(-gap_E)
    said_better, said_worse = math.log1p(-label_smoothing), math.log(label_smoothing)
    return better_E.exp() * (better_E - said_better) + worse_E.exp() * (worse_E - said_worse)


@_in_float32
def discopop(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, tau: float = 0.05, margin: Margin = 0.0) -> Tensor:
    """(1 - s) (-log sigmoid(h)) + s exp(-h), s = sigmoid(h / tau).  Lu et al. 2024, eq. 5, arXiv:2406.08414"""
    gap_E = _gap(chosen_E, rejected_E, beta, margin)
    exponential_E = (logsigmoid(gap_E / tau) - gap_E).exp()  # s exp(-h): apart, it is 0 times infinity
    return -torch.sigmoid(-gap_E / tau) * logsigmoid(gap_E) + exponential_E


@_in_float32
def apo_zero(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, margin: Margin = 0.0) -> Tensor:
    """1 - sigmoid(beta c) + sigmoid(beta r): chosen up, rejected down.

    D'Oosterlinck et al. 2024 (APO), eq. 7, arXiv:2408.06266.
    """
    return torch.sigmoid(margin - beta * chosen_E) + torch.sigmoid(beta * rejected_E)


@_in_float32
def apo_down(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, margin: Margin = 0.0) -> Tensor:
    """sigmoid(beta c) + 1 - sigmoid(beta (c - r)): both down, rejected more.  D'Oosterlinck et al. 2024, eq. 8"""
    return torch.sigmoid(beta * chosen_E) + torch.sigmoid(-_gap(chosen_E, rejected_E, beta, margin))


@_in_float32
def nca_pair(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, margin: Margin = 0.0) -> Tensor:
    """-log sigmoid(b c) - 1/2 log sigmoid(-b c) - 1/2 log sigmoid(-b r).  Chen et al. 2024 (NCA), arXiv:2402.05369"""
    better_E, worse_E = beta * chosen_E - margin, beta * rejected_E
    return -logsigmoid(better_E) - (logsigmoid(-better_E) + logsigmoid(-worse_E)) / 2


@_in_float32
def sppo_hard(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, margin: Margin = 0.0) -> Tensor:
    """(c - 1 / (2 beta))^2 + (r + 1 / (2 beta))^2.  Wu et al. 2024, eq. 4.7 with P = 1 and 0, arXiv:2405.00675"""
    half = 1 / (2 * beta)
    return (chosen_E - margin - half).square() + (rejected_E + half).square()


@_in_float32
def bco_pair(chosen_E: Tensor, rejected_E: Tensor, *, beta: float, shift: Margin, margin: Margin = 0.0) -> Tensor:
    """-log sigmoid(beta c - d) - log sigmoid(d - beta r), d the mean reward.  Jung et al. 2024, arXiv:2404.04656"""
    return -logsigmoid(beta * chosen_E - margin - shift) - logsigmoid(shift - beta * rejected_E)


@_in_float32
def sft(logp_E: Tensor, length_E: Tensor) -> Tensor:
    """-log pi(y|x) / |y| of the chosen answer.  Pang et al. 2024, eq. 1, second term, arXiv:2404.19733"""
    return -logp_E / length_E.clamp(min=1)
