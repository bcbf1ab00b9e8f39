"""What a model and its reference say of the pairs of a micro-batch.

N supervised tokens, P paths (two a pair), E pairs.
"""

import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_tasks.logprobs import logprobs_with_collisions, target_logprobs
from ike_tasks.pair_mixture import Pairs
from ike_tasks.pairs import pair_lengths, pair_logprobs, refuse_others
from ike_tasks.paths import path_sums

REFERENCE = "reference"
"""The table `[frozen.reference]`."""


def score_pairs(
    model: nn.Module, batch: Batch, context: Context, *, ld_alpha: float, margin_scale: float, wpo: bool
) -> Pairs:
    """Both models' log-probabilities; two forwards."""
    refuse_others(batch)
    weights_N = batch["token_weights"]
    if ld_alpha != 1.0:
        weights_N = weights_N * length_weights(batch, ld_alpha=ld_alpha)
    closeness_E = None
    if wpo:
        logp_N, collisions_N = logprobs_with_collisions(model, batch)
        closeness_E = _closeness(logp_N.detach() - collisions_N, batch)
    else:
        logp_N = target_logprobs(model, batch)
    with torch.no_grad():
        reference_N = target_logprobs(context.frozen[REFERENCE], batch)
    logp_E2, reference_E2 = (_sums(values_N, batch, weights_N) for values_N in (logp_N, reference_N.to(logp_N.dtype)))
    lengths_E2, margins_E = pair_lengths(batch).to(logp_N.dtype), margin_scale * batch["margins"]
    return Pairs(logp_E2, reference_E2, lengths_E2, margins_E.to(logp_N.dtype), closeness_E)


def _sums(values_N: Tensor, batch: Batch, weights_N: Tensor) -> Tensor:
    return path_sums(values_N * weights_N.to(values_N.dtype), batch).view(-1, 2)


def _closeness(aligned_N: Tensor, batch: Batch) -> Tensor:
    """exp of the average over tokens of log p(token) - log sum_v p(v)^2, the two answers' multiplied, [E].

    Zhou et al. 2024 (WPO), eq. 2 with sampled alignment, arXiv:2406.11827. 1 is what the policy's own answers have.
    """
    sums_E2 = _sums(aligned_N, batch, batch["token_weights"])
    return (sums_E2 / pair_lengths(batch).clamp(min=1).to(sums_E2.dtype)).sum(1).exp()


def length_weights(batch: Batch, *, ld_alpha: float) -> Tensor:
    """1 for a token within the length of the shorter answer of its pair, `ld_alpha` beyond it, [N].

    Liu et al. 2024 (LD-DPO), eq. 9, arXiv:2409.06411. What a trunk supervises lies within both.
    """
    paths_N, ends = batch["target_paths"], batch["ends"].numel()
    own_P = torch.zeros(ends, dtype=torch.int64, device=paths_N.device).index_add(0, paths_N, torch.ones_like(paths_N))
    ahead_P = torch.zeros_like(own_P).index_add(0, batch["shared_paths"], torch.ones_like(batch["shared_paths"]))
    starts_P = own_P.cumsum(0) - own_P - ahead_P
    shorter_P = (own_P + ahead_P).view(-1, 2).amin(1).repeat_interleave(2, output_size=ends)
    places_N = torch.arange(paths_N.numel(), device=paths_N.device) - starts_P.index_select(0, paths_N)
    is_within_N = places_N < shorter_P.index_select(0, paths_N)
    return ld_alpha + (1 - ld_alpha) * is_within_N.to(torch.float64)


def reference_pairs(batch: Batch, context: Context, *, like: Tensor) -> Tensor:
    """The reference's log-probabilities of the two answers, [E, 2].

    For a StepObjective's scores: 0 where a gradient is made, since nothing is learned through them.
    """
    if torch.is_grad_enabled():
        return torch.zeros_like(like)
    return pair_logprobs(context.frozen[REFERENCE], batch).to(like.dtype)
