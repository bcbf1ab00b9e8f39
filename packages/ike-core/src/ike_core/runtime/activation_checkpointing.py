"""Recompute activations in the backward instead of keeping them."""

from typing import Any, Protocol, runtime_checkable

from torch import nn

from ike_core.errors import ConfigError


@runtime_checkable
class Recomputes(Protocol):
    """A model that knows which of its blocks to recompute, as those of transformers do."""

    config: Any
    supports_gradient_checkpointing: bool

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, Any]) -> None: ...

    def disable_input_require_grads(self) -> None: ...


def enable_activation_checkpointing(model: nn.Module) -> None:
    """Block by block, non-reentrant: keywords reach the recomputation, and frozen inputs are no trap.

    Turns `config.use_cache` off: a block that runs twice would fill the cache twice. ConfigError for a model that
    can't.
    """
    if not isinstance(model, Recomputes) or not model.supports_gradient_checkpointing:
        raise ConfigError(
            f"model.activation_checkpointing = true, but {type(model).__name__} has no activation_checkpointing_enable "
            "that works (most models of transformers have); set it to false"
        )
    model.activation_checkpointing_enable({"use_reentrant": False})
    model.disable_input_require_grads()  # only a reentrant one needs it: the backward would run through frozen blocks
    model.config.use_cache = False
