"""Batches from host to device without waiting."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch
from torch import Tensor

from ike_core.batch import Batch


def pinned(batch: Batch) -> Batch:
    """In page-locked memory, so that `place` need not wait; called in the prefetch thread of a GPU run."""
    return attrs.evolve(batch, tensors=_each(batch.tensors, _pin))


def _pin(tensor: Tensor) -> Tensor:
    """A collate of the user's own may have put a tensor on the device already."""
    return tensor if tensor.is_cuda else tensor.pin_memory()


def finisher(device: torch.device) -> Callable[[Batch], Batch]:
    """What the prefetch thread does to a batch last."""
    return pinned if device.type == "cuda" else _as_it_is


def _as_it_is(batch: Batch) -> Batch:
    return batch


def place(batch: Batch, device: torch.device) -> Batch:
    """Copies what is not there yet; tensors of any nesting in mappings, all else as it is."""
    return attrs.evolve(batch, tensors=_each(batch.tensors, lambda tensor: tensor.to(device, non_blocking=True)))


def _each(tensors: Mapping[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name, value in tensors.items():
        if isinstance(value, Mapping):
            changed[name] = _each(value, change)
        else:
            changed[name] = change(value) if isinstance(value, Tensor) else value
    return changed
