"""The models that don't learn, by name: what an objective needs of them, and what is said where one is not there."""

from collections.abc import Iterable
from typing import Any

from ike_core.errors import ConfigError
from ike_core.interfaces import NeedsFrozen
from ike_core.spoken import name_of


class FrozenModels(dict[str, Any]):
    """`context.frozen`: a name that no table has is a ConfigError that says which table to write."""

    def __missing__(self, name: str) -> Any:
        raise ConfigError(f"the objective asks for the frozen model {name!r}; {_remedy(name)}")


def absent(objective: Any, names: Iterable[str]) -> str:
    """What an objective needs and no table of `names` gives, and what to write; '' where nothing is."""
    missing = [name for name in _needed(objective) if name not in names]
    if not missing:
        return ""
    return f"{name_of(objective)} needs the frozen model {missing[0]!r}; {_remedy(missing[0])}"


def require_frozen(objectives: Iterable[Any], names: Iterable[str]) -> None:
    """ConfigError where one of them needs a frozen model that no table gives."""
    for objective in objectives:
        if lack := absent(objective, names):
            raise ConfigError(lack)


def _needed(objective: Any) -> tuple[str, ...]:
    """Names of the frozen models that an objective says it needs."""
    return tuple(objective.needs_frozen) if isinstance(objective, NeedsFrozen) else ()


def _remedy(name: str) -> str:
    """What to write."""
    return (
        f'write [frozen.{name}] with uses = "ike_core.runtime:PretrainedModel" into the run file '
        "(without a path it is the model as it stands before the first step)"
    )
