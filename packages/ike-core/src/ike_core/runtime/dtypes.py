"""Torch's dtypes by name."""

import torch

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp64": "float64"}
"""engine.precision -> what parameters are."""


def named(name: str) -> torch.dtype:
    """'float32' -> torch.float32."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}[name]
