"""An adapter's folder laid onto the model that it stands beside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ike_core.adapters import WEIGHTS, Adapter, Change
from ike_core.errors import ConfigError


def merge_adapter(model: nn.Module, adapter: Adapter) -> None:
    """Collective under ZeRO-3. The model becomes what the adapter makes of it, in place, computed in float32 at least.

    One of its tensors at a time is whole. ConfigError where the file can't be read, or doesn't fit the model.
    """
    path = adapter.folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as opened, torch.no_grad():
            changes = adapter.changes(opened.keys())
            _fit_embeddings(model, changes, opened)
            parameters = dict(model.named_parameters(remove_duplicate=False))
            for name, change in changes.items():
                if name not in parameters:
                    raise ConfigError(f"{path} changes {name}, and {type(model).__name__} has no such parameter")
                layer = model.get_submodule(name.rpartition(".")[0])
                with _whole(parameters[name]):
                    _apply(parameters[name], change, opened.get_tensor, is_transposed=isinstance(layer, Conv1D))
    except (OSError, SafetensorError, RuntimeError) as error:  # torch's of shapes that don't go together
        raise ConfigError(f"{path} can't be laid onto {adapter.base}: {error}") from error


def _apply(parameter: nn.Parameter, change: Change, read: Callable[[str], Tensor], *, is_transposed: bool) -> None:
    wide = torch.promote_types(parameter.dtype, torch.float32)
    changed = change.apply(
        parameter.to(wide), lambda name: read(name).to(parameter.device, wide), is_transposed=is_transposed
    )
    if changed.shape != parameter.shape:
        raise RuntimeError(f"{list(changed.shape)} is not the model's {list(parameter.shape)}")
    parameter.copy_(changed)


def _fit_embeddings(model: nn.Module, changes: dict[str, Change], opened: Any) -> None:
    """An adapter for added tokens brings all of the embeddings, which have more rows than the base's."""
    if not isinstance(model, PreTrainedModel):
        return
    embeddings = model.get_input_embeddings()
    for name, module in model.named_modules():
        change = changes.get(f"{name}.weight")
        if module is embeddings and change is not None and change.whole:
            rows = opened.get_slice(change.whole).get_shape()[0]
            if rows != embeddings.num_embeddings:
                model.resize_token_embeddings(rows, mean_resizing=False)


@contextmanager
def _whole(parameter: nn.Parameter) -> Iterator[None]:
    """Under ZeRO-3 a rank holds a piece; every rank computes the same, and rank 0's is dealt out."""
    if not hasattr(parameter, "ds_id"):
        yield
        return
    import deepspeed  # imported already: such a parameter is its own

    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
        yield
