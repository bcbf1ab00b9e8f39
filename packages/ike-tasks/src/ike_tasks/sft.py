"""SFT: cross-entropy on the tokens that are learned."""

import attrs
from torch import nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.mean import Mean
from ike_core.step_output import StepOutput
from ike_tasks.cross_entropy import CrossEntropy
from ike_tasks.embedding_noise import NeftuneNoise
from ike_tasks.logprobs import token_loss_sum


@attrs.frozen(kw_only=True)
class SFT:
    """Mean cross-entropy over supervised tokens, each with its weight.

    Where an option makes the loss another one, the bare cross-entropy is a metric. No option costs a further pass.
    """

    label_smoothing: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0), attrs.validators.lt(1)])
    """Share of probability that the target gives to all ids alike, in [0, 1).  Szegedy et al. 2016, arXiv:1512.00567"""
    z_loss: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    """Weight of the mean squared log of the softmax's normaliser, at least 0; 1e-4 is usual.  Chowdhery et al. 2022,
    arXiv:2204.02311"""
    dft: bool = False
    """Dynamic Fine-Tuning: each token's cross-entropy is weighted by the probability that the model gives the token,
    through which no gradient flows.  Wu et al. 2025, arXiv:2508.05629"""
    neftune_alpha: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    """Size of the uniform noise on the embeddings while training, at least 0; 5 to 15 are usual.  Jain et al. 2023,
    arXiv:2310.05914"""

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:
        loss = CrossEntropy(label_smoothing=self.label_smoothing, z_loss=self.z_loss, dynamic=self.dft)
        is_noisy = bool(self.neftune_alpha) and context.training
        noise = NeftuneNoise(self.neftune_alpha, batch, context) if is_noisy else None
        total, parts = token_loss_sum(model, batch, loss, noise=noise)
        weight = batch.weights["tokens"]
        return StepOutput(Mean(total, weight), {name: Mean(part, weight) for name, part in parts.items()})
