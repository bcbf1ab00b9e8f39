"""Float32 masters of a bf16 run, from the float32 that the model was built with.

DeepSpeed makes masters from the bf16 parameters, which have lost 16 bits of what the file says.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def float32_of(module: nn.Module) -> Mapping[str, Tensor]:
    """A copy on the host of every float32 parameter that learns; taken before the engine casts them."""
    return {
        name: parameter.detach().to("cpu", copy=True)
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.dtype == torch.float32
    }


def set_masters(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Collective. The masters become these values; the bf16 parameters already are their roundings."""
    if not values:
        return
    from deepspeed.utils import safe_set_full_fp32_param  # 2.4 s, and the plain engine needs none of it

    for name, parameter in module.named_parameters():
        if name in values:
            safe_set_full_fp32_param(parameter, values[name])
