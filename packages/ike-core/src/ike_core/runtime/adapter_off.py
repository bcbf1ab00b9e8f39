"""The policy without its adapter: the model beneath, with no weight of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from ike_core.runtime.evaluation_mode import evaluation_mode


class AdapterOff(nn.Module):
    """Called as the policy is, in evaluation mode and without gradients; between a forward of its and the backward too.

    Under ZeRO-3 a call is collective, as one of the policy is. `engine_model` is what objectives call: its forward
    runs the module with ZeRO's hooks.
    """

    def __init__(self, engine_model: nn.Module) -> None:
        super().__init__()
        self.policy = engine_model
        self._adapted = [module for module in engine_model.modules() if isinstance(module, BaseTunerLayer)]

    def forward(self, *args: Any, **named: Any) -> Any:
        with evaluation_mode(self.policy), _off(self._adapted):
            return self.policy(*args, **named)


@contextmanager
def _off(layers: Sequence[BaseTunerLayer]) -> Iterator[None]:
    """peft's own switch, not its `enable_adapters`, which flips `requires_grad` of what the engine has taken over."""
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False
