"""Which parameters learn."""

from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from ike_core.errors import ConfigError
from ike_core.runtime.patterns import matching


def apply_freeze(model: nn.Module, freeze: Sequence[str], train: Sequence[str]) -> None:
    """Parameters that a `freeze` pattern is found in don't learn; with `train`, only those that one is found in do.

    A tied parameter answers to all its names. ConfigError for a pattern that is found in no name, for both lists at
    once, and where nothing would be left to learn. Without patterns the model is as its builder left it.
    """
    if not freeze and not train:
        return
    if freeze and train:
        raise ConfigError("model.freeze and model.train are alternatives; give one of them")
    named = list(model.named_parameters(remove_duplicate=False))
    names = [name for name, _ in named]
    key = "model.train" if train else "model.freeze"
    matched = {name for pattern in freeze or train for name in matching(pattern, names, key)}
    chosen = {id(parameter) for name, parameter in named if name in matched}
    for _, parameter in named:
        parameter.requires_grad_((id(parameter) in chosen) == bool(train))
    if not any(parameter.requires_grad for _, parameter in named):
        raise ConfigError(f"model.freeze = {list(freeze)} leaves nothing to learn: {len(names)} of {len(names)} match")


def freeze_others(model: nn.Module, optimizer: Optimizer) -> None:
    """Parameters that the optimizer does not hold don't learn: no gradient is made for them, and no norm counts them.

    ConfigError where it holds none that does.
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for parameter in model.parameters():
        if id(parameter) not in held:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("the optimizer holds no parameter that learns, so no step would change the model")


def frozen(model: nn.Module) -> nn.Module:
    """The model itself, in evaluation mode and without gradients, for `[frozen.*]`."""
    return model.requires_grad_(False).eval()
