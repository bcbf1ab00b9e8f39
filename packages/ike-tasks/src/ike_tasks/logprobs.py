"""What objectives are made of: log-probabilities of the supervised tokens.

N supervised tokens of the micro-batch, in the order of its examples, whatever the packing.

`model` is what the engine calls, prepared by a collate of ike's. Each function is one forward, which is collective
under ZeRO-3: every rank makes as many, filler included, and never in a loop over chunks of the batch.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from ike_core.batch import Batch
from ike_tasks.cross_entropy import CrossEntropy
from ike_tasks.scoring import EmbeddingNoise, prepared
from ike_tasks.token_loss import TokenLoss


def target_logprobs(model: nn.Module, batch: Batch) -> Tensor:
    """log p(target | what comes before), [N], float32 (float64 of a float64 model). For any loss.

    Logits exist for a few hundred tokens at a time; the backward computes them again, unless the head is frozen.
    """
    prepared(model)
    logp_N: Tensor = model(scored=batch)
    return logp_N


def logprobs_with_collisions(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """`target_logprobs`, and log sum_v p(v)^2 at each target, [N], through which no gradient flows.

    The second is what a token drawn from the model itself has on average: how sure it is of itself there.
    """
    prepared(model)
    logp_N, collisions_N = model(scored=batch, with_collisions=True)
    return logp_N, collisions_N


def weighted_logprob_sum(model: nn.Module, batch: Batch) -> Tensor:
    """Sum of target weight * log p(target), []. For losses that are linear in log-probabilities.

    The gradient is made in the forward, up to the factor that arrives in the backward: a quarter less work than by
    `target_logprobs`, and one backward only.
    """
    total, _ = token_loss_sum(model, batch, CrossEntropy())
    return -total


def token_loss_sum(
    model: nn.Module, batch: Batch, loss: TokenLoss, *, noise: EmbeddingNoise | None = None
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Sum of target weight * loss, [], and of its parts by name, through which no gradient flows.

    As lean as `weighted_logprob_sum`, which is the case of `CrossEntropy()`; one backward only. `noise` is added to the
    embeddings.
    """
    prepared(model)
    total, parts_K = model(scored=batch, token_loss=loss, embedding_noise=noise)
    return total, dict(zip(loss.names, parts_K.unbind(), strict=True))
