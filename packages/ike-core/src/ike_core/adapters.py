"""Adapters as peft keeps them in a folder, read without it: which tensors make which weight, and how.

O outputs, I inputs of a layer, R rank.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_core.errors import ConfigError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_KEPT = frozenset(
    "task_type peft_type auto_mapping peft_version base_model_name_or_path revision inference_mode r target_modules "
    "exclude_modules lora_alpha lora_dropout fan_in_fan_out bias use_rslora modules_to_save init_lora_weights "
    "layers_to_transform layers_pattern rank_pattern use_dora ensure_weight_tying megatron_core qalora_group_size "
    "runtime_config eva_config".split()
)
"""Settings of peft's that are read here, or that leave no trace in what an adapter computes."""
_INITIAL = (True, False, None, "gaussian", "orthogonal", "eva")
"""Beginnings that leave the base's weights as they were."""


@attrs.frozen
class Adapter:
    """An adapter's settings."""

    folder: Path
    base: str
    """Folder, file or hub name of the model that it stands beside."""
    alpha: float
    is_rank_stabilized: bool
    """rsLoRA: alpha / sqrt(rank) instead of alpha / rank."""
    is_transposed: bool
    """Whether it was said that the base's weights are [I, O]."""
    is_classifier: bool
    """Whether it stands beside a sequence classifier, with a head in the place of the base's."""

    @classmethod
    def read(cls, folder: Path) -> "Adapter":
        """Of a folder with adapter_config.json; ConfigError for one that isn't LoRA, rsLoRA or DoRA of plain layers."""
        path = folder / CONFIG
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} can't be read: {error}") from error
        if said.get("peft_type") != "LORA":
            raise ConfigError(f"{path}: peft_type is {said.get('peft_type')!r}; LORA can be read, with its variants")
        unknown = {name: value for name, value in said.items() if value and name not in _KEPT}
        if said.get("init_lora_weights") not in _INITIAL:
            unknown["init_lora_weights"] = said["init_lora_weights"]
        if said.get("bias", "none") != "none":
            unknown["bias"] = said["bias"]
        if unknown:
            told = ", ".join(f"{name} = {value!r}" for name, value in unknown.items())
            raise ConfigError(f"{path}: {told}: that is no LoRA, rsLoRA or DoRA of plain layers; merge it with peft")
        return cls(
            folder=folder,
            base=said.get("base_model_name_or_path") or "",
            alpha=float(said["lora_alpha"]),
            is_rank_stabilized=bool(said.get("use_rslora")),
            is_transposed=bool(said.get("fan_in_fan_out")),
            is_classifier=said.get("task_type") == "SEQ_CLS",
        )

    def changes(self, names: Iterable[str]) -> dict[str, "Change"]:
        """Parameter of the base -> what the adapter makes of it, from the names of the adapter's tensors.

        ConfigError for a name that is no adapter's.
        """
        layers: dict[str, dict[str, str]] = {}
        whole: dict[str, Change] = {}
        for name in names:
            if not name.startswith(_PREFIX):
                raise ConfigError(f"{self.folder / WEIGHTS}: {name} does not begin with {_PREFIX}, as in peft's files")
            layer, dot, kind = name.removeprefix(_PREFIX).rpartition(".lora_")
            if dot:
                layers.setdefault(layer, {})[kind.removesuffix(".weight")] = name
            else:
                whole[kind] = Change(whole=name)
        pairs = {f"{layer}.weight": self._pair(layer, parts) for layer, parts in layers.items()}
        return pairs | whole

    def _pair(self, layer: str, parts: Mapping[str, str]) -> "Change":
        if not {"A", "B"} <= parts.keys() <= {"A", "B", "magnitude_vector"}:
            raise ConfigError(
                f"{self.folder / WEIGHTS}: {layer} has {', '.join(sorted(parts))}; lora_A and lora_B are needed"
            )
        return Change(a=parts["A"], b=parts["B"], magnitude=parts.get("magnitude_vector", ""), adapter=self)


@attrs.frozen
class Change:
    """What becomes of one parameter: other values, or its own and a product of two matrices."""

    whole: str = ""
    """Name of the tensor that takes its place."""
    a: str = ""
    """Of the matrix [R, I]."""
    b: str = ""
    """Of the matrix [O, R]."""
    magnitude: str = ""
    """DoRA's, of the vector [O]."""
    adapter: Adapter | None = None

    def apply(self, weight: Any, read: Callable[[str], Any], *, is_transposed: bool) -> Any:
        """The changed parameter, from its own tensor and those of the adapter by name, all of one dtype.

        weight + scale * B A (Hu et al. 2022, eq. 3, arXiv:2106.09685); with magnitudes each row of that at their
        length (Liu et al. 2024, eq. 5, arXiv:2402.09353). [O, I], or [I, O] where it is transposed
        """
        if self.whole:
            return read(self.whole)
        assert self.adapter is not None
        a_RI, b_OR = read(self.a), read(self.b)
        rank = a_RI.shape[0]
        scale = self.adapter.alpha / (math.sqrt(rank) if self.adapter.is_rank_stabilized else rank)
        product_OI = (b_OR @ a_RI) * scale
        changed = weight + (product_OI.T if is_transposed else product_OI)
        if not self.magnitude:
            return changed
        rows = 0 if is_transposed else 1
        length = changed.square().sum(rows, keepdim=True).sqrt()
        return changed * (read(self.magnitude).reshape(length.shape) / length)


def holds_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, and not a whole model."""
    return (folder / CONFIG).is_file()
