"""Torch's dtypes by name."""

import torch


def named(name: str) -> torch.dtype:
    """'float32' -> torch.float32."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}[name]
