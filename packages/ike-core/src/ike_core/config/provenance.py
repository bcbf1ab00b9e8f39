"""Who says each value: the file and line that set it, and what it overrode."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from ike_core.config.keys import Key


@attrs.frozen
class Origin:
    """A line of a file, an override, or (neither) ike's own default."""

    file: Path | None = None
    line: int = 0
    """From 1; 0 where the file as a whole is meant."""
    override: str = ""
    """As it was given: 'objective.beta=0.2'."""
    raw: str | None = None
    """The override's text behind `=`, at the very key that it names."""
    folder: Path = attrs.field(factory=Path.cwd)
    """What a relative path said here is relative to."""

    @property
    def is_default(self) -> bool:
        """Whether no layer says it."""
        return self.file is None and not self.override

    def __str__(self) -> str:
        if self.file is not None:
            return f"{shown(self.file)}:{self.line}" if self.line else shown(self.file)
        return f"override {self.override}" if self.override else "default"


@attrs.frozen
class Said:
    """A value as a layer says it."""

    key: Key
    value: Any
    origin: Origin


class Provenance:
    """The origin of every value, and in order what was said before it."""

    def __init__(self) -> None:
        self._said: dict[Key, list[Said]] = {}
        self._tables: dict[Key, Origin] = {}

    def say(self, key: Key, value: Any, origin: Origin) -> None:
        """`key` is now `value`; what it was is kept as overridden."""
        self._said.setdefault(key, []).append(Said(key, value, origin))

    def open(self, key: Key, origin: Origin) -> None:
        """A table is named."""
        self._tables.setdefault(key, origin)

    def forget(self, key: Key) -> list[Said]:
        """Takes out all that was said at and under `key`; returns it."""
        taken: list[Said] = []
        for known in [known for known in self._said if known[: len(key)] == key]:
            taken += self._said.pop(known)
        for known in [known for known in self._tables if known[: len(key)] == key]:
            del self._tables[known]
        return taken

    def inherit(self, key: Key, said: list[Said]) -> None:
        """What `key` overrode under other names."""
        self._said.setdefault(key, [])[:0] = said

    def history(self, key: Key) -> tuple[Said, ...]:
        """All that was said for `key`, the value that stands last; empty where nothing was."""
        return tuple(self._said.get(key, ()))

    def origin(self, key: Key) -> Origin:
        """Of the value at `key`, else of the nearest table or array around it."""
        for length in range(len(key), 0, -1):
            if said := self._said.get(key[:length]):
                return said[-1].origin
            if key[:length] in self._tables:
                return self._tables[key[:length]]
        return Origin()

    def __iter__(self) -> Iterator[Said]:
        """What stands, one a value."""
        return (said[-1] for said in self._said.values())


def shown(path: Path) -> str:
    """Relative to the current folder where it lies in it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def absolute(path: str, folder: Path) -> str:
    """Without `..`; `~` is the home folder."""
    return os.path.normpath(folder / os.path.expanduser(path))
