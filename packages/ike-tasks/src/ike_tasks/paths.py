"""Sums along the paths of a batch: what a loss over whole answers sees of its tokens.

N supervised tokens, P paths: an example is one, a comparison one an answer.
"""

from torch import Tensor, nn

from ike_core.batch import Batch
from ike_tasks.logprobs import target_logprobs


def path_sums(values_N: Tensor, batch: Batch) -> Tensor:
    """Each path's own sum, [N] -> [P]. What a trunk supervises counts on every path through it."""
    sums_P = values_N.new_zeros(batch["ends"].numel()).index_add(0, batch["target_paths"], values_N)
    return sums_P.index_add(0, batch["shared_paths"], values_N.index_select(0, batch["shared_targets"]))


def path_logprobs(model: nn.Module, batch: Batch) -> Tensor:
    """log p(answer | prompt) of every path, [P]: the sum over its supervised tokens, each with its own weight.

    One forward, collective under ZeRO-3; `model` is the policy or one of `context.frozen`.
    """
    logp_N = target_logprobs(model, batch)
    return path_sums(logp_N * batch["token_weights"].to(logp_N.dtype), batch)


def path_lengths(batch: Batch) -> Tensor:
    """Supervised tokens of every path, each with its own weight, [P], float64."""
    return path_sums(batch["token_weights"], batch)
