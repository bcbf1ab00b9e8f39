"""What objectives are made of: log-probabilities of the supervised tokens.

N supervised tokens of the micro-batch, in the order of its examples, whatever the packing.

`model` is what the engine calls, prepared by a collate of ike's. Each function is one forward, which is collective
under ZeRO-3: every rank makes as many, filler included, and never in a loop over chunks of the batch.
"""

from torch import Tensor, nn

from ike_core.batch import Batch
from ike_tasks.scoring import prepared


def target_logprobs(model: nn.Module, batch: Batch) -> Tensor:
    """log p(target | what comes before), [N], float32 (float64 of a float64 model). For any loss.

    Logits exist for a few hundred tokens at a time; the backward computes them again, unless the head is frozen.
    """
    prepared(model)
    logp_N: Tensor = model(scored=batch)
    return logp_N


def weighted_logprob_sum(model: nn.Module, batch: Batch) -> Tensor:
    """Sum of target weight * log p(target), []. For losses that are linear in log-probabilities.

    The gradient is made in the forward, up to the factor that arrives in the backward: a quarter less work than by
    `target_logprobs`, and one backward only.
    """
    prepared(model)
    total: Tensor = model(scored=batch, is_summed=True)
    return total
