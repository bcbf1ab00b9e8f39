"""Modules by name or the last parts of it, as peft's settings name them."""

import difflib
from collections.abc import Sequence

from torch import nn

from ike_core.errors import ConfigError


def found_modules(model: nn.Module, wanted: Sequence[str], key: str) -> dict[str, nn.Module]:
    """Full name -> module of all whose name is one of `wanted` or ends with one after a dot, in the model's order.

    ConfigError, saying `key` and the nearest, for one that is no module's.
    """
    modules = dict(model.named_modules())
    parts = {name.rpartition(".")[2] for name in modules if name}
    chosen: set[str] = set()
    for one in wanted:
        named = {name for name in modules if name == one or name.endswith(f".{one}")}
        if not one or not named:
            near = difflib.get_close_matches(one, sorted(parts), n=3, cutoff=0.0)
            raise ConfigError(f"{key} = {one!r} is no module's name or last part; near: {', '.join(near)}")
        chosen |= named
    return {name: module for name, module in modules.items() if name in chosen}
