"""`[optimizer.groups.*]`: parameters sorted into torch's parameter groups."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ike_core.config.sections import GroupSection
from ike_core.errors import ConfigError
from ike_core.runtime.patterns import matching


def parameter_groups(
    named_parameters: Iterable[tuple[str, nn.Parameter]], groups: Mapping[str, GroupSection], peak_lr: float
) -> list[dict[str, Any]]:
    """Groups for a torch optimizer: params, lr (the group's peak), name, and weight_decay where it is not its default.

    The first table that matches a parameter takes it; what none matches comes first, as group ''. Each group comes
    in two parts of one name: matrices, which decay, and the rest (biases, norms), which never does. Parameters that
    don't learn are left out. ConfigError for a table that takes nothing.
    """
    learning = {name: parameter for name, parameter in named_parameters if parameter.requires_grad}
    tables = {"": GroupSection(match=""), **groups}
    owner = _owners(list(learning), groups)
    parts = []
    for group, section in tables.items():
        mine = [parameter for name, parameter in learning.items() if owner.get(name, "") == group]
        common = {"lr": peak_lr * section.lr_scale, "name": group}
        decay = {} if section.weight_decay is None else {"weight_decay": section.weight_decay}
        matrices = [parameter for parameter in mine if is_matrix(parameter)]
        others = [parameter for parameter in mine if not is_matrix(parameter)]
        parts += [{"params": matrices, **common, **decay}, {"params": others, **common, "weight_decay": 0.0}]
    return [part for part in parts if part["params"]]


def _owners(names: list[str], groups: Mapping[str, GroupSection]) -> dict[str, str]:
    """Parameter name -> the table that takes it."""
    owner: dict[str, str] = {}
    for group, section in groups.items():
        key = f"optimizer.groups.{group}.match"
        found = matching(section.match, names, key, of="parameter names that learn")
        free = [name for name in found if name not in owner]
        if not free:
            takers = sorted({owner[name] for name in found})
            raise ConfigError(
                f"{key} = {section.match!r} takes nothing: what it matches is already in {', '.join(takers)}; "
                "the first table that matches takes a parameter, so put the narrower one first"
            )
        owner.update(dict.fromkeys(free, group))
    return owner


def is_matrix(parameter: nn.Parameter) -> bool:
    """Two dimensions or more; under ZeRO-3, which holds a parameter as a flat piece, of the whole."""
    shape = parameter.ds_shape if hasattr(parameter, "ds_shape") else parameter.shape
    return len(shape) >= 2
