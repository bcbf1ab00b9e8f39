"""Cross-entropy and what is done to it: smoothing, a penalty of the normaliser, weights by the model's own confidence.

C tokens of a chunk, V vocabulary. With logits l, lse = logsumexp(l) and p = softmax(l) at a token with target y:

    smoothed   (1 - e) * (lse - l_y) + e * (lse - mean(l))        Szegedy et al. 2016, section 7, arXiv:1512.00567
    z          c * lse^2                                          Chowdhery et al. 2022, section 5, arXiv:2204.02311
    dynamic    stop_gradient(p_y) * (the smoothed one)            Wu et al. 2025 (DFT), arXiv:2508.05629
"""

from collections.abc import Sequence

import attrs
from torch import Tensor

from ike_tasks import logits as chunks
from ike_tasks.logits import pick, softmax_
from ike_tasks.token_loss import ScoredTokens


@attrs.frozen(kw_only=True)
class CrossEntropy:
    """A token loss: -log p of the targets, and its variants. See `ike_tasks.token_loss.TokenLoss`."""

    label_smoothing: float = 0.0
    """e: the share of probability that the target gives to all ids alike, in [0, 1)."""
    z_loss: float = 0.0
    """c: the weight of the squared logsumexp; 1e-4 is usual."""
    dynamic: bool = False
    """Whether each token's cross-entropy is weighted by its own probability, through which no gradient flows."""

    @property
    def chunk(self) -> int:
        """One [C, V] is held."""
        return chunks.CHUNK

    @property
    def names(self) -> Sequence[str]:
        """The bare cross-entropy, where the loss is another."""
        return () if self == CrossEntropy() else ("cross_entropy",)

    def __call__(
        self, logits_CV: Tensor, tokens: ScoredTokens, *, learns: bool
    ) -> tuple[Sequence[Tensor], Tensor | None]:
        """The loss, then the bare cross-entropy."""
        target_C = pick(logits_CV, tokens.targets)
        mean_C = logits_CV.mean(1) if self.label_smoothing else target_C
        normalizer_C = softmax_(logits_CV)
        bare_C = normalizer_C - target_C
        confidence = (-bare_C).exp() if self.dynamic else 1.0
        mixed_C = (1 - self.label_smoothing) * target_C + self.label_smoothing * mean_C
        loss_C = (normalizer_C - mixed_C) * confidence + self.z_loss * normalizer_C**2
        values = [loss_C, bare_C] if self.names else [loss_C]
        if not learns:
            return values, None
        pull_C = tokens.weights * confidence
        push_C = pull_C + tokens.weights * (2 * self.z_loss) * normalizer_C
        return values, self._gradient_(logits_CV, tokens.targets, push_C, pull_C)

    def _gradient_(self, softmax_CV: Tensor, targets_C: Tensor, push_C: Tensor, pull_C: Tensor) -> Tensor:
        """push * softmax - pull * ((1 - e) * onehot + e / V), in place of the softmax."""
        smoothing, size = self.label_smoothing, softmax_CV.shape[1]
        softmax_CV.mul_(push_C[:, None])
        if smoothing:
            softmax_CV.sub_(pull_C[:, None] * (smoothing / size))
        return softmax_CV.scatter_add_(1, targets_C[:, None], (pull_C * (smoothing - 1))[:, None])
