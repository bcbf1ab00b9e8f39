"""`save_checkpoint`: a module's weights from anyone's script."""

import copy
import sys
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ike_ckpt.fileid import check_name
from ike_ckpt.ranks import ScriptRanks
from ike_ckpt.steps import StepContents, step_folder, write_step
from ike_core.errors import CheckpointError
from ike_core.interfaces import SavedModel


def save_checkpoint(model: nn.Module, *, file_id: str, step: int = 0, root: str | Path = "runs") -> Path:
    """Writes the weights to `root/<file_id>/step-000000/model/` and returns the step's folder.

    Collective where torch.distributed is initialised: rank 0 writes, all return when it is on disk. A module of
    transformers gets its config beside, so that `from_pretrained(folder / "model")` reads it; for any other
    `load_state_dict(read_weights(folder / "model"))` does. Wrappers (DDP, torch.compile, a DeepSpeed engine) are taken
    off. Raises CheckpointError where the step is there already, and for parameters that ZeRO-3 has in pieces.
    """
    try:
        check_name(file_id, "a file_id")
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(step, int) or step < 0:
        raise CheckpointError(f"step = {step!r}: a step is a whole number, 0 or more")
    ranks, target = ScriptRanks(), step_folder(Path(root) / file_id, step)
    if ranks.broadcast(target.exists()):
        raise CheckpointError(f"{target} is there already; give another step=, or a new file_id (create_fileid())")
    write_step(ranks, target, StepContents(model=_saved(_unwrapped(model))), keep_last=None)
    return target


@runtime_checkable
class SavesConfig(Protocol):
    """A config as transformers has them."""

    architectures: Any

    def save_pretrained(self, save_directory: Path) -> Any: ...


@runtime_checkable
class HasConfig(Protocol):
    """A model that carries the config it was built from."""

    config: Any


@runtime_checkable
class Generates(Protocol):
    """A model that has settings for `generate`."""

    generation_config: Any


def _saved(model: nn.Module) -> SavedModel:
    tensors, tied = _state(model)
    config = None
    if isinstance(model, HasConfig) and isinstance(model.config, SavesConfig):
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]  # absent in a model that was built and not loaded
    return SavedModel(
        weights=lambda: iter(tensors.items()),
        config=config,
        generation_config=model.generation_config if config and isinstance(model, Generates) else None,
        tokenizer=None,
        tied=tied,
    )


def _state(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `state_dict` has: tensors under their first name, and later name -> first name of those that are tied."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"{name} is {type(tensor).__name__}, not a tensor, and can't be kept without a pickle"
            )
        kept = first.setdefault(id(tensor), name)
        if kept == name:
            tensors[name] = tensor
        else:
            tied[name] = kept
    return tensors, tied


def _unwrapped(model: nn.Module) -> nn.Module:
    """What a wrapper holds: its own parameter names are the ones to save."""
    while True:
        if isinstance(model, DistributedDataParallel | DataParallel) or _is_a(model, "deepspeed", "DeepSpeedEngine"):
            inner = model.module
        elif _is_a(model, "torch._dynamo", "OptimizedModule"):
            inner = model._orig_mod
        else:
            return model
        assert isinstance(inner, nn.Module)
        model = inner


def _is_a(model: nn.Module, package: str, name: str) -> bool:
    """There is no such object unless its package is imported, so none is imported here."""
    return package in sys.modules and isinstance(model, getattr(sys.modules[package], name))
