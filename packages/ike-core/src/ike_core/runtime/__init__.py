"""The only folder of ike-core that imports torch, deepspeed and transformers.

Names load on first use: the plain engine needs no DeepSpeed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ike_core.runtime.deepspeed_engine import DeepSpeed
    from ike_core.runtime.model import PretrainedModel
    from ike_core.runtime.optimizer import SGD, AdamW
    from ike_core.runtime.padded import Padded
    from ike_core.runtime.torch_engine import PlainTorch

__all__ = ["SGD", "AdamW", "DeepSpeed", "Padded", "PlainTorch", "PretrainedModel"]

_ROOMS = {
    "SGD": "optimizer",
    "AdamW": "optimizer",
    "DeepSpeed": "deepspeed_engine",
    "Padded": "padded",
    "PlainTorch": "torch_engine",
    "PretrainedModel": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
