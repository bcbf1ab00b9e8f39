"""What is asked of a module or an optimizer that someone gives."""

import copy
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel

from ike_core.batch import Vocabulary
from ike_core.errors import ConfigError
from ike_core.interfaces import SavedModel


def is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def is_optimizer(value: Any) -> bool:
    return isinstance(value, torch.optim.Optimizer)


def positions(module: nn.Module) -> int:
    """Tokens that a transformers model has positions for; 0 where it doesn't say."""
    config = getattr(module, "config", None)  # a module of the user's own need not have one
    return int(getattr(config, "max_position_embeddings", 0) or 0)


def peak_memory(device: torch.device) -> int:
    """Bytes: the device's peak, or on a CPU this process's peak resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # POSIX only, and so is a CPU run

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def folder_of(module: Any) -> str | None:
    """The folder or hub name that a transformers model came from; None for any other."""
    config = getattr(module, "config", None)  # a module of the user's own need not have one
    return getattr(config, "name_or_path", "") or None


def vocabulary(module: nn.Module) -> Vocabulary:
    """Of a transformers model that comes without a tokenizer; pad is the first of pad, eos and 0 that it has."""
    config = getattr(module, "config", None)  # a module of the user's own need not have one
    if config is None:
        raise ConfigError(
            "the model has no config that tells its vocabulary; say tokenizer.path, or give the module a `config` with "
            "vocab_size and pad_token_id"
        )
    eos = config.eos_token_id[0] if isinstance(config.eos_token_id, list) else config.eos_token_id
    pad = next(token for token in (config.pad_token_id, eos, 0) if token is not None)
    return Vocabulary(size=config.vocab_size, pad=pad, bos=config.bos_token_id, eos=eos)


def saved_model(module: nn.Module, weights: Any, tokenizer: Any) -> SavedModel:
    """What a checkpoint part writes of a module; its tensors come from the engine."""
    names: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if (first := names.setdefault(id(parameter), name)) != name:
            tied[name] = first
    config = None
    if isinstance(module, PreTrainedModel):
        config = copy.deepcopy(module.config)
        config.architectures = [type(module).__name__]  # absent in a model that was built and not loaded
    return SavedModel(
        weights=weights,
        config=config,
        generation_config=module.generation_config if isinstance(module, GenerationMixin) else None,
        tokenizer=tokenizer,
        tied=tied,
    )
