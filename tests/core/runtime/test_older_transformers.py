"""What has another name in an older transformers is still called right."""

from typing import Any

from torch import nn

from ike_core.runtime.activation_checkpointing import enable_activation_checkpointing


class Older(nn.Module):
    """A model as transformers 5.0 to 5.22 make them."""

    supports_gradient_checkpointing = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        self.calls.append(gradient_checkpointing_kwargs)

    def disable_input_require_grads(self) -> None:
        self.calls.append("inputs need no gradient")


def test_checkpointing_is_non_reentrant_under_its_older_name_too() -> None:
    model = Older()
    enable_activation_checkpointing(model)
    assert model.calls == [{"use_reentrant": False}, "inputs need no gradient"]
