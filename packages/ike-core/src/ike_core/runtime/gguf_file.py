"""A model out of a GGUF file, whole: packed weights can be neither trained nor saved."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ike_core.errors import ConfigError
from ike_core.runtime.whole_parameters import whole_parameters


def load_gguf(file: Path, dtype: torch.dtype, attention: str | None) -> tuple[nn.Module, Mapping[str, Any]]:
    """The model, and what transformers reports of its loading. Each rank unpacks all of it, in host memory.

    Raises ConfigError where the packages that read the format are not installed.
    """
    absent = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
    if absent:
        raise ConfigError(f"reading {file} needs {' and '.join(absent)}: pip install 'ike-core[gguf]'")
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    with whole_parameters():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=dtype,
            attn_implementation=attention,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    if not is_deepspeed_zero3_enabled():
        return loaded  # type: ignore[no-any-return]
    whole, report = loaded
    weights = dict(whole.state_dict())  # not the OrderedDict itself: transformers 5.23 trips over its metadata
    dealt = type(whole).from_pretrained(
        None, config=whole.config, state_dict=weights, dtype=dtype, attn_implementation=attention
    )
    return dealt, report
