"""What a loss over tokens is: values and a gradient, from one chunk of logits at a time.

N scored tokens, C tokens of a chunk, V vocabulary, K parts of a loss.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ike_tasks.logits import FullLogits, spans


@attrs.frozen
class ScoredTokens:
    """Tokens that are learned."""

    targets: Tensor
    """[C], ids."""
    weights: Tensor
    """[C]: what a loss counts; the gradient is that of the weighted sum."""
    at: slice = slice(None)
    """Which of the N tokens of the micro-batch they are."""

    def __len__(self) -> int:
        return len(self.targets)

    def chunk(self, at: slice, dtype: torch.dtype) -> "ScoredTokens":
        """Some of them, their weights in the dtype of the logits."""
        return ScoredTokens(self.targets[at], self.weights[at].to(dtype), at)


class TokenLoss(Protocol):
    """A loss that is a sum over tokens of something of their logits.

    It makes its own gradient, so that logits need exist for a few hundred tokens only, and only once.
    """

    @property
    def chunk(self) -> int:
        """Tokens at a time: `ike_tasks.logits.CHUNK` where one [C, V] is held, less where it is several."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """What it gives beside the loss: K names."""
        ...

    def __call__(
        self, logits_CV: Tensor, tokens: ScoredTokens, *, learns: bool
    ) -> tuple[Sequence[Tensor], Tensor | None]:
        """The loss of each token [C], then K further values [C]; with `learns`, the gradient [C, V] of
        (loss * weights).sum() with respect to the logits, which may be overwritten.
        """
        ...


def add_up(values: Sequence[Tensor], tokens: ScoredTokens) -> Tensor:
    """Weighted sums, [1 + K]."""
    return torch.stack([value_C @ tokens.weights for value_C in values])


def sum_of(logits_NV: Tensor, scored: ScoredTokens, loss: TokenLoss) -> tuple[Tensor, Tensor]:
    """The sum of a token loss and of its K parts, from full logits: for models whose head can't be called alone."""
    if not torch.is_grad_enabled():
        logits_NV = logits_NV.detach()
    sums: tuple[Tensor, Tensor] = _SumOfLogits.apply(logits_NV, scored, loss)  # type: ignore[no-untyped-call]
    return sums


class _SumOfLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, scored: ScoredTokens, loss: TokenLoss) -> tuple[Tensor, Tensor]:
        learns = ctx.needs_input_grad[0]
        source, gradients, sums = FullLogits(logits_NV), [], []
        for at in spans(len(scored), loss.chunk):
            logits_CV = source(at)
            tokens = scored.chunk(at, logits_CV.dtype)
            values, gradient_CV = loss(logits_CV, tokens, learns=learns)
            sums.append(add_up(values, tokens))
            if gradient_CV is not None:
                gradients.append(gradient_CV.to(logits_NV.dtype))
        if gradients:
            ctx.save_for_backward(torch.cat(gradients))
        total, parts = torch.stack(sums).sum(0).split([1, len(loss.names)])
        ctx.mark_non_differentiable(parts)
        return total.squeeze(0), parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (gradient_NV,) = ctx.saved_tensors
        return gradient_NV * grad, None, None
