"""Recompute activations in the backward instead of keeping them."""

from typing import Any, Protocol, runtime_checkable

from torch import nn

from ike_core.errors import ConfigError


@runtime_checkable
class Recomputes(Protocol):
    """A model that knows which of its blocks to recompute, as those of transformers do."""

    config: Any

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, Any]) -> None: ...


def enable_activation_checkpointing(model: nn.Module) -> None:
    """Block by block, non-reentrant: keywords reach the recomputation, and frozen inputs are no trap.

    Turns `config.use_cache` off: a block that runs twice would fill the cache twice. ConfigError for a model that
    can't.
    """
    if not isinstance(model, Recomputes):
        raise ConfigError(
            f"model.activation_checkpointing = true, but {type(model).__name__} has no activation_checkpointing_enable "
            "(models of transformers have); set it to false"
        )
    model.activation_checkpointing_enable({"use_reentrant": False})
    model.config.use_cache = False
