"""Evaluation mode for a while, alike for every engine."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """No dropout, no gradient; the mode before comes back, after an error too."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
