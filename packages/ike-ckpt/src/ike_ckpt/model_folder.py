"""`model/`: weights, config, generation config and tokenizer, as `from_pretrained` reads a folder; or an adapter's."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from ike_ckpt.weights import ADAPTER, write_weights
from ike_core.interfaces import SavedModel


def write_model(folder: Path, model: SavedModel, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Everything of a model but what trains it. `tensors` is what `model.weights()` gave."""
    folder.mkdir()
    if model.adapter_config is None:
        written = write_weights(folder, tensors, tied=model.tied)
    else:  # peft reads one file, and an adapter is small
        written = write_weights(folder, tensors, stem=ADAPTER, shard_bytes=sys.maxsize)
        model.adapter_config.save_pretrained(folder)
    if model.config is not None:
        model.config.save_pretrained(folder)
        if written.dtype is not None:
            say_dtype(folder / "config.json", written.dtype)
    if model.generation_config is not None:
        # not its save_pretrained: that refuses settings which transformers itself loads and uses
        model.generation_config.to_json_file(folder / "generation_config.json")
    if model.tokenizer is not None:
        model.tokenizer.save(folder)


def say_dtype(path: Path, dtype: torch.dtype) -> None:
    """`from_pretrained` believes the config before the file, and a config remembers what it was read with."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
