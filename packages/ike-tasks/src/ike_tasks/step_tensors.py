"""Numbers of a step's examples, from the host to where its scores are."""

from collections.abc import Sequence

import torch
from torch import Tensor


def step_tensor(values: Sequence[float], *, like: Tensor) -> Tensor:
    """[E], of the device and dtype of `like`; nothing waits."""
    made = torch.tensor(values, dtype=like.dtype, pin_memory=like.is_cuda)
    return made.to(like.device, non_blocking=True)
