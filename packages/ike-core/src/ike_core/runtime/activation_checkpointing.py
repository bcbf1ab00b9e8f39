"""Recompute activations in the backward instead of keeping them."""

from typing import Any, Protocol, runtime_checkable

from torch import nn
from transformers import GenerationMixin

from ike_core.errors import ConfigError


@runtime_checkable
class Recomputes(Protocol):
    """A model that knows which of its blocks to recompute, as those of transformers do (from 5.23)."""

    supports_gradient_checkpointing: bool

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, Any]) -> None: ...

    def disable_input_require_grads(self) -> None: ...


@runtime_checkable
class RecomputedBefore(Protocol):
    """The same before transformers 5.23, where it had another name."""

    supports_gradient_checkpointing: bool

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None: ...

    def disable_input_require_grads(self) -> None: ...


def enable_activation_checkpointing(model: nn.Module) -> None:
    """Block by block, non-reentrant: keywords reach the recomputation, and frozen inputs are no trap.

    In training mode a model that generates keeps no cache, which a block that runs twice would fill twice; its config
    stays as it is, since it is saved. ConfigError for a model that can't.
    """
    if not isinstance(model, Recomputes | RecomputedBefore) or not model.supports_gradient_checkpointing:
        raise ConfigError(
            f"model.activation_checkpointing = true, but {type(model).__name__} has no activation_checkpointing_enable "
            "that works (most models of transformers have); set it to false"
        )
    if isinstance(model, Recomputes):
        model.activation_checkpointing_enable({"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.disable_input_require_grads()  # only a reentrant one needs it: the backward would run through frozen blocks
    if isinstance(model, GenerationMixin):
        model.register_forward_pre_hook(_without_cache, with_kwargs=True)


def _without_cache(model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return given, {**named, "use_cache": False} if model.training else named
