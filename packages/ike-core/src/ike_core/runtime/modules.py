"""What is asked of a module or an optimizer that someone gives."""

import copy
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel

from ike_core.batch import Vocabulary
from ike_core.errors import ConfigError
from ike_core.interfaces import SavedModel, Tokenizer
from ike_core.spoken import kind_of


def is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def given_module(value: Any) -> nn.Module:
    """A module, or what a `build_model()` callable makes; ConfigError for anything else."""
    module = value if is_module(value) or not callable(value) else value()
    if not isinstance(module, nn.Module):
        made = "model= is" if module is value else "the callable given as model= returned"
        raise ConfigError(
            f"{made} {kind_of(module)}; give a torch module, or a callable without arguments that makes one"
        )
    return module


def given_optimizer(value: Any, module: nn.Module) -> torch.optim.Optimizer:
    """A torch optimizer, or what a callable makes for the module; ConfigError where it is not over its parameters."""
    if isinstance(value, type) or not (callable(value) or isinstance(value, torch.optim.Optimizer)):
        given = f"the class {value.__name__}" if isinstance(value, type) else kind_of(value)
        raise ConfigError(
            f"optimizer= is {given}; give a torch optimizer over the model's parameters, or a callable(model) that "
            "makes one"
        )
    optimizer = value if isinstance(value, torch.optim.Optimizer) else value(module)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"the callable given as optimizer= returned {kind_of(optimizer)}, not a torch optimizer")
    own = {id(parameter) for parameter in module.parameters()}
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    if strangers := sum(parameter not in own for parameter in held):
        raise ConfigError(
            f"{strangers} of the {len(held)} tensors of optimizer= are not the model's parameters, so it would learn "
            "nothing of them; make the optimizer from the model that is given"
        )
    return optimizer


def positions(module: nn.Module) -> int:
    """Tokens that a transformers model has positions for; 0 where it doesn't say."""
    config = getattr(module, "config", None)  # a module of the user's own need not have one
    return int(getattr(config, "max_position_embeddings", 0) or 0)


def embeddings(module: nn.Module) -> int:
    """Token ids that a transformers model knows; 0 where it doesn't say."""
    config = getattr(module, "config", None)  # a module of the user's own need not have one
    return int(getattr(config, "vocab_size", 0) or 0)


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


def saved_model(module: nn.Module, weights: Any, tokenizer: Tokenizer | None) -> SavedModel:
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
        generation_config=_generation_config(module, tokenizer),
        tokenizer=tokenizer,
        tied=tied,
    )


def _generation_config(module: nn.Module, tokenizer: Tokenizer | None) -> Any:
    """The model's own, with the tokenizer's end among its ends: `generate` stops where the model was taught to stop."""
    if not isinstance(module, GenerationMixin):
        return None
    own = module.generation_config
    end = None if tokenizer is None else tokenizer.vocabulary.eos
    ends = own.eos_token_id if isinstance(own.eos_token_id, list) else [own.eos_token_id]
    if end is None or end in ends:
        return own
    extended = copy.deepcopy(own)
    extended.eos_token_id = [*(token for token in ends if token is not None), end]
    return extended
