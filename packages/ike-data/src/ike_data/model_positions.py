"""How many positions a model has, from its configuration alone: no weight is read, and torch is not needed."""

from pathlib import Path
from typing import Any

from ike_core.config.component import Component

PRETRAINED = "ike_core.runtime:PretrainedModel"


def model_positions(model: Component | None) -> int | None:
    """What the run finds in the built model: tokens that it has positions for, 0 where it doesn't say.

    None where only building it could tell: a model of the user's own, or none in the settings.
    """
    if model is None or model.uses != PRETRAINED:
        return None
    config = _config(str(model.table.get("path", "")))
    return None if config is None else int(getattr(config, "max_position_embeddings", 0) or 0)  # many have none


def _config(path: str) -> Any:
    """As transformers reads it: a file may leave out what the architecture's own default says."""
    try:
        from transformers import AutoConfig  # 2 s and an optional extra, paid for already by the tokenizer
    except ImportError:
        return None
    place = Path(path)
    try:
        if place.suffix == ".gguf":
            return AutoConfig.from_pretrained(str(place.parent), gguf_file=place.name)
        return AutoConfig.from_pretrained(path)
    except (OSError, ValueError, ImportError):
        return None
