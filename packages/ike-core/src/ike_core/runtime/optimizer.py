"""`[optimizer]`: torch's own optimizers, and the parameter groups that they are given."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from torch.optim import Optimizer

from ike_core.interfaces import BuildContext

_SHARE = [attrs.validators.ge(0.0), attrs.validators.lt(1.0)]


@attrs.frozen
class AdamW:
    """Adam with decoupled weight decay. Loshchilov and Hutter 2019, arXiv:1711.05101

    torch's fused form, on CPU too: one pass over each tensor, 6x cheaper there than torch's default loop.
    """

    betas: tuple[float, float] = attrs.field(default=(0.9, 0.999), validator=attrs.validators.deep_iterable(_SHARE))
    """Decay rates of the first and second moment, each in [0, 1)."""
    eps: float = attrs.field(default=1e-8, validator=attrs.validators.ge(0.0))
    """Added to the root of the second moment."""
    weight_decay: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """Share of a matrix that decays per unit of learning rate; biases and norms don't decay."""

    def build(
        self,
        named_parameters: Sequence[tuple[str, Tensor]],  # noqa: ARG002  all that learn are in the groups
        groups: Sequence[Mapping[str, Any]],
        context: BuildContext,  # noqa: ARG002
    ) -> Optimizer:
        """`groups` are those of `parameter_groups`: a group's own `weight_decay` wins over the field."""
        return torch.optim.AdamW(
            [dict(group) for group in groups],
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=True,
        )


@attrs.frozen
class SGD:
    """Stochastic gradient descent."""

    momentum: float = attrs.field(default=0.0, validator=_SHARE)
    """Share of the last update that goes on."""

    def build(
        self,
        named_parameters: Sequence[tuple[str, Tensor]],  # noqa: ARG002  all that learn are in the groups
        groups: Sequence[Mapping[str, Any]],
        context: BuildContext,  # noqa: ARG002
    ) -> Optimizer:
        return torch.optim.SGD([dict(group) for group in groups], momentum=self.momentum)
