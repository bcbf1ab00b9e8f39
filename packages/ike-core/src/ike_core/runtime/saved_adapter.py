"""What a checkpoint part writes of a model with adapters: they and what learned beside them, in peft's names."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin

from ike_core.interfaces import Engine, SavedModel, Tokenizer
from ike_core.runtime.lora import ADAPTER, whole_names
from ike_core.runtime.module_names import found_modules

_PREFIX = "base_model.model."
"""What peft's own wrapper puts before the names of the model that it holds."""


def saved_adapter(model: nn.Module, engine: Engine, tokenizer: Tokenizer | None, *, base: str | None) -> SavedModel:
    """`base` is the folder, file or hub name of the model beneath, which the adapter's config names.

    No config of the model goes with it: transformers takes a folder that has one for a whole model.
    """
    whole = {name: model.get_submodule(name) for name in whole_names(model)}
    names = _saved_names(model, whole)

    def weights() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in engine.weights(names.__contains__):
            for saved in names[name]:
                yield saved, tensor

    return SavedModel(
        weights=weights,
        config=None,
        generation_config=None,
        tokenizer=tokenizer,
        adapter_config=_config(model, whole, base),
    )


def _saved_names(model: nn.Module, whole: dict[str, nn.Module]) -> dict[str, list[str]]:
    """Name of a parameter -> names in the file: of an adapter's one; of a tied one all, since peft reads each."""
    first: dict[int, str] = {}
    aliases: dict[str, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(first.setdefault(id(parameter), name), []).append(name)
    kept = {id(parameter) for module in whole.values() for parameter in module.parameters()}
    kept |= {id(parameter) for name, parameter in model.named_parameters() if ".lora_" in name}
    return {aliases[name][0]: [_saved(alias) for alias in aliases[name]] for key, name in first.items() if key in kept}


def _saved(name: str) -> str:
    """peft's files leave out the adapter's name, and say of a magnitude only that."""
    return _PREFIX + name.replace(f"lora_magnitude_vector.{ADAPTER}.weight", "lora_magnitude_vector").replace(
        f".{ADAPTER}.", "."
    )


def _config(model: Any, whole: dict[str, nn.Module], base: str | None) -> Any:
    """peft's own, for adapter_config.json."""
    used = model.peft_config[ADAPTER]
    tied = [name for name, module in model.named_modules(remove_duplicate=False) if _is_tied_to(module, whole)]
    config = dataclasses.replace(
        used,
        base_model_name_or_path=str(Path(base).absolute()) if base and Path(base).exists() else base,
        task_type=_task(model),
        modules_to_save=sorted({*whole, *tied}) or None,
        ensure_weight_tying=bool(set(tied) - set(whole)),
        inference_mode=True,
    )
    config.target_modules = _short(model, used.target_modules)  # a list in one order, where peft makes it a set
    return config


def _is_tied_to(module: nn.Module, whole: dict[str, nn.Module]) -> bool:
    """Whether it has a parameter of its own that one of the modules has too."""
    own = {id(parameter) for parameter in module.parameters(recurse=False)}
    return any(id(parameter) in own for other in whole.values() for parameter in other.parameters(recurse=False))


def _short(model: nn.Module, targets: set[str]) -> list[str]:
    """Last parts of the names, as people write them, where they find the same layers."""
    parts = sorted({name.rpartition(".")[2] for name in targets})
    modules = found_modules(model, parts, "model.lora.target_modules")
    return parts if set(modules) == set(targets) else sorted(targets)


def _task(model: nn.Module) -> str | None:
    """What peft's wrapper is to be."""
    if type(model).__name__.endswith("ForSequenceClassification"):
        return "SEQ_CLS"
    return "CAUSAL_LM" if isinstance(model, GenerationMixin) else None
