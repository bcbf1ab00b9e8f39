"""The gradients of an output layer, summed over chunks of tokens.

C tokens of a chunk, V vocabulary, D hidden size.
"""

import attrs
import torch
from torch import Tensor

from ike_tasks.logits import wide


@attrs.define
class HeadGradients:
    """Sums over chunks, the weight's in float32 at least."""

    hidden: list[Tensor] | None
    weight: Tensor | None
    bias: Tensor | None
    dtypes: tuple[torch.dtype, torch.dtype]
    """Of weight and bias."""

    @classmethod
    def zeros(cls, hidden: Tensor, weight: Tensor, bias: Tensor | None, needed: tuple[bool, ...]) -> "HeadGradients":
        """`needed`: whether hidden, weight and bias want one."""
        dtype, device = wide(weight), hidden.device
        return cls(
            hidden=[] if needed[0] else None,
            weight=torch.zeros(weight.shape, dtype=dtype, device=device) if needed[1] else None,
            bias=torch.zeros(bias.shape, dtype=dtype, device=device) if bias is not None and needed[2] else None,
            dtypes=(weight.dtype, weight.dtype if bias is None else bias.dtype),
        )

    def add(self, raw_CV: Tensor, hidden_CD: Tensor, weight_VD: Tensor) -> None:
        """One chunk's gradient with respect to the raw logits."""
        if self.bias is not None:
            self.bias += raw_CV.sum(0)
        raw_CV = raw_CV.to(weight_VD.dtype)
        if self.hidden is not None:
            self.hidden.append(raw_CV @ weight_VD)
        if self.weight is not None and self.weight.dtype == hidden_CD.dtype:
            self.weight.addmm_(raw_CV.T, hidden_CD)
        elif self.weight is not None:
            self.weight += raw_CV.T @ hidden_CD

    def scaled(self, factor: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Times the factor, in place, in the dtypes of what they are the gradients of."""
        hidden = None if self.hidden is None else torch.cat(self.hidden)
        if factor is not None:
            for tensor in (hidden, self.weight, self.bias):
                if tensor is not None:
                    tensor.mul_(factor)
        weight = None if self.weight is None else self.weight.to(self.dtypes[0])
        return hidden, weight, None if self.bias is None else self.bias.to(self.dtypes[1])
