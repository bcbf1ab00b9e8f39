"""What is wrong with the settings, gathered, and said at once."""

from collections.abc import Iterable
from typing import Any

import attrs

from ike_core.config.keys import Key, dotted
from ike_core.config.provenance import Provenance
from ike_core.errors import ConfigError


@attrs.frozen
class Problem:
    """One thing that can't be used, and what to do."""

    key: Key
    message: str
    """Stands behind the dotted key: ' = -1.0 must be >= 0.0', ' is no known key'."""


class Problems:
    """All that is wrong so far."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, key: Key, message: str) -> None:
        self._found.append(Problem(key, message))

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: Key) -> bool:
        """Whether something is wrong with this very key."""
        return any(problem.key == key for problem in self._found)

    def since(self, mark: int) -> list[Problem]:
        """Takes back what was added after the first `mark`."""
        taken = self._found[mark:]
        del self._found[mark:]
        return taken

    def extend(self, found: Iterable[Problem]) -> None:
        self._found.extend(found)

    def settle(self, provenance: Provenance) -> None:
        """ConfigError with every problem on a line of its own and where it was said; nothing where there is none."""
        lines = list(dict.fromkeys(line(problem, provenance) for problem in self._found))
        if len(lines) == 1:
            raise ConfigError(lines[0])
        if lines:
            raise ConfigError(f"{len(lines)} settings can't be used:" + "".join(f"\n  {line}" for line in lines))


def line(problem: Problem, provenance: Provenance) -> str:
    """batch.tokens_per_device = 1 must be >= 2 (run.toml:14)"""
    origin = provenance.origin(problem.key)
    place = "" if origin.is_default else f" ({origin})"
    return f"{dotted(problem.key)}{problem.message}{place}"


def briefly(value: Any) -> str:
    """A value for a message, in TOML's spelling, cut where it is long."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
