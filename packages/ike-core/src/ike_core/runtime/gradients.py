"""Gradient norms, and losses that can't hide that they are not finite."""

from collections.abc import Iterable

import torch
from torch import Tensor


def poisoned(loss: Tensor) -> Tensor:
    """The loss itself; where it is not finite its gradient isn't either, so the norm tells without a look at the loss.

    An infinite loss can have a finite gradient (a clamp behind a logarithm), and one that went unseen would be logged
    as a step like any other. 0 * x is 0 for every finite x, and nan otherwise: no rounding, no synchronisation.
    """
    return loss * (1 + 0 * loss.detach())


def gradient_norm(parameters: Iterable[torch.nn.Parameter]) -> Tensor:
    """2-norm of all gradients together."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.nn.utils.get_total_norm(gradients)
