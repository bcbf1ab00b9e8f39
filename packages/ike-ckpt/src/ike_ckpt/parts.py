"""`state/parts.json` and `parts.safetensors`: what Stateful parts keep, alike on every rank.

The JSON is theirs as they gave it; where a tensor stood is its key in the file of tensors, as {"tensor": key}.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ike_ckpt.disk import write_json
from ike_core.errors import CheckpointError

LIST = "parts.json"
TENSORS = "parts.safetensors"


def write_parts(folder: Path, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """`parts`: by the part's table, such as hooks.ema. CheckpointError where a value is neither JSON nor a tensor."""
    if not parts:
        return
    tensors: dict[str, Tensor] = {}
    words = {name: _words(kept, name, tensors) for name, kept in parts.items()}
    if tensors:
        save_file(tensors, folder / TENSORS)
    write_json(folder / LIST, words)


def _words(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[place] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": place}
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str) or key == "tensor"]:
            raise CheckpointError(f"{place} has the key {wrong[0]!r}; keys are strings, and not 'tensor'")
        return {key: _words(inner, f"{place}.{key}", tensors) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_words(inner, f"{place}.{number}", tensors) for number, inner in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise CheckpointError(f"{place} is a {type(value).__name__}; state() gives tensors and JSON values")


def read_parts(folder: Path) -> dict[str, dict[str, Any]]:
    """What was written; {} where no part had anything to keep."""
    path = folder / LIST
    if not path.exists():
        return {}
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
        tensors: dict[str, Tensor] = {}
        if (folder / TENSORS).exists():
            with safe_open(folder / TENSORS, framework="pt") as opened:
                tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 not a dict
        return {name: _values(kept, tensors) for name, kept in words.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged: {error!r}") from error


def _values(words: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(words, list):
        return [_values(inner, tensors) for inner in words]
    if isinstance(words, dict):
        if words.keys() == {"tensor"}:
            return tensors[words["tensor"]]
        return {key: _values(inner, tensors) for key, inner in words.items()}
    return words
