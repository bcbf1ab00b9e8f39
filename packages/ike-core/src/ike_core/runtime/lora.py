"""`[model.lora]`: low-rank adapters beside the layers of a frozen model, through peft.

LoRA: Hu et al. 2022, arXiv:2106.09685. rsLoRA: Kalajdzievski 2023, arXiv:2312.03732. DoRA: Liu et al. 2024,
arXiv:2402.09353.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ike_core.config.sections import LoraSection
from ike_core.errors import ConfigError
from ike_core.runtime.module_names import found_modules
from ike_core.runtime.whole_parameters import whole_parameters

ADAPTER = "default"
"""peft's name of an only adapter."""
_HEADS = ("score", "classifier")
"""transformers' names of the heads that a sequence classifier has, drawn anew on any base model."""


def add_adapter(model: nn.Module, lora: LoraSection, *, has_grown: bool = False) -> None:
    """Freezes the model and puts adapters beside its layers, in place: its class and the names of what has none stay.

    The product of an adapter's matrices is 0 at first, so the model says what it said. `has_grown`: its embeddings have
    new rows, which learn with the rest of them. ConfigError where peft is not installed, a name is of no module or of
    one that can't have an adapter, or nothing is left to adapt.
    """
    peft = _peft()
    whole = _whole_modules(model, lora, has_grown=has_grown)
    targets = _targets(model, lora, whole)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha) if lora.alpha.is_integer() else lora.alpha,  # whole in peft's own files
        lora_dropout=lora.dropout,
        target_modules=list(targets),
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in targets.values()),
        use_dora=lora.variant == "dora",
        use_rslora=lora.variant == "rslora",
    )
    with whole_parameters():
        peft.inject_adapter_in_model(config, model)
    config.modules_to_save = sorted(whole)  # said to peft before, it would make copies that no scoring head knows
    for module in whole.values():
        module.requires_grad_(True)
    if lora.variant == "dora":
        _share_base_weights(model)


def whole_names(model: Any) -> list[str]:
    """Modules that learn whole beside the adapters."""
    names: list[str] = model.peft_config[ADAPTER].modules_to_save
    return names


def _whole_modules(model: nn.Module, lora: LoraSection, *, has_grown: bool) -> dict[str, nn.Module]:
    """Those named, embeddings with new rows, and a classifier's head, which no base model has."""
    found = found_modules(model, lora.modules_to_save, "model.lora.modules_to_save")
    ends = {id(end) for end in _ends(model)} if has_grown else set()
    children = dict(model.named_children()) if isinstance(model, PreTrainedModel) else {}
    heads = {name: module for name, module in children.items() if name in _HEADS}
    return heads | {name: module for name, module in model.named_modules() if id(module) in ends} | found


def _peft() -> Any:
    try:
        import peft  # an optional extra, and seconds
    except ImportError as error:
        raise ConfigError("[model.lora] needs peft, which is not installed: pip install 'ike-core[lora]'") from error
    return peft


def _targets(model: nn.Module, lora: LoraSection, whole: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Layers that get an adapter, by full name."""
    outside = {id(part) for module in [*whole.values(), *_ends(model)] for part in module.modules()}
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)}
    if not lora.target_modules:
        return _some({name: module for name, module in linear.items() if id(module) not in outside}, model)
    found = found_modules(model, lora.target_modules, "model.lora.target_modules")
    for name, module in found.items():
        if id(module) in outside:
            raise ConfigError(
                f"model.lora.target_modules names {name}, which can't have an adapter: embeddings and heads learn "
                f'whole or not at all; say model.lora.modules_to_save = ["{name.rpartition(".")[2]}"]'
            )
        if name not in linear:
            raise ConfigError(
                f"model.lora.target_modules names {name}, a {type(module).__name__}; adapters stand beside linear "
                f"layers: {', '.join(_last_parts(linear))}"
            )
    return found


def _some(linear: dict[str, nn.Module], model: nn.Module) -> dict[str, nn.Module]:
    if not linear:
        raise ConfigError(f"[model.lora]: {type(model).__name__} has no linear layer but its head")
    return linear


def _ends(model: nn.Module) -> list[nn.Module]:
    """Embeddings and output layer: scoring reads the output layer in chunks, and both may be one tensor."""
    if not isinstance(model, PreTrainedModel):
        return []
    return [end for end in (model.get_input_embeddings(), model.get_output_embeddings()) if end is not None]


def _last_parts(names: Iterable[str]) -> list[str]:
    return sorted({name.rpartition(".")[2] for name in names})


def _share_base_weights(model: nn.Module) -> None:
    """DoRA's layers read a weight that is another module's: under ZeRO-3 it must be whole there too."""
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    if not is_deepspeed_zero3_enabled():
        return
    import deepspeed
    from peft.tuners.lora import LoraLayer

    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            for magnitudes in layer.lora_magnitude_vector.values():
                deepspeed.zero.register_external_parameter(magnitudes, layer.get_base_layer().weight)


def learning_share(model: nn.Module) -> str:
    """'24,576 of 285,440 parameters learn (8.6 %)'"""
    sizes = [(_size(parameter), parameter.requires_grad) for parameter in model.parameters()]
    learning, all_ = sum(size for size, learns in sizes if learns), sum(size for size, _ in sizes)
    return f"{learning:,} of {all_:,} parameters learn ({100 * learning / all_:.2g} %)"


def _size(parameter: nn.Parameter) -> int:
    """Of the whole; under ZeRO-3 a rank holds a piece."""
    return int(parameter.ds_numel if hasattr(parameter, "ds_numel") else parameter.numel())
