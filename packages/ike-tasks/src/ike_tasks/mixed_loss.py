"""Several token losses of the same logits.

C tokens of a chunk, V vocabulary.
"""

from collections.abc import Mapping, Sequence

import attrs
from torch import Tensor

from ike_tasks.token_loss import ScoredTokens, TokenLoss


@attrs.frozen
class MixedLoss:
    """The sum of token losses, each times a coefficient; gives every one of them too, by its name."""

    terms: Mapping[str, tuple[float, TokenLoss]]
    """Name -> (coefficient, loss)."""

    @property
    def chunk(self) -> int:
        """What the widest of them takes."""
        return min(loss.chunk for _, loss in self.terms.values())

    @property
    def names(self) -> Sequence[str]:
        """Of the terms, whose values come before the coefficients."""
        return tuple(self.terms)

    def __call__(
        self, logits_CV: Tensor, tokens: ScoredTokens, *, learns: bool
    ) -> tuple[Sequence[Tensor], Tensor | None]:
        """The weighted sum, then each term."""
        total: Tensor | None = None
        whole: Tensor | None = None
        parts = []
        for left, (coefficient, loss) in zip(reversed(range(len(self.terms))), self.terms.values(), strict=True):
            # each may overwrite what it is given
            (value_C, *_), gradient_CV = loss(logits_CV.clone() if left else logits_CV, tokens, learns=learns)
            parts.append(value_C)
            total = value_C * coefficient if total is None else total + value_C * coefficient
            if gradient_CV is not None:
                scaled_CV = gradient_CV.mul_(coefficient)
                whole = scaled_CV if whole is None else whole.add_(scaled_CV)
        assert total is not None
        return [total, *parts], whole
