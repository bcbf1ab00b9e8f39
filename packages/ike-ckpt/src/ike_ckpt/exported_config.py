"""A base's config.json as that of the model that an adapter makes of it."""

import json
import re
from pathlib import Path
from typing import Any

from ike_ckpt.model_tensors import ModelTensors

_CAUSAL = re.compile(r"(ForCausalLM|LMHeadModel)$")
"""How transformers' names of models with an output layer end."""


def fit_config(path: Path, tensors: ModelTensors, *, is_classifier: bool) -> None:
    """Says the rows of embeddings that have grown, and a classifier's name and labels; a config that fits stays."""
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = config.get("vocab_size")
    if rows in tensors.grown:
        config["vocab_size"] = tensors.grown[rows]
    if is_classifier and tensors.added:
        labels = next(iter(tensors.added.values()))
        names = config.get("architectures") or []
        config["architectures"] = [_CAUSAL.sub("ForSequenceClassification", name) for name in names]
        config["id2label"] = {str(label): f"LABEL_{label}" for label in range(labels)}
        config["label2id"] = {f"LABEL_{label}": label for label in range(labels)}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
