"""What a part is, as JSON that is the same in every process: its class, its fields, the content of files it names."""

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs
import orjson


@runtime_checkable
class Described(Protocol):
    """A part that says itself what it is, because its fields don't: a tokenizer's content is not its path."""

    def description(self) -> Mapping[str, Any]:
        """JSON that differs wherever what the part makes of a row may differ."""
        ...


class IndescribableError(Exception):
    """A value that no JSON stands for. Says which, and why."""


@attrs.define
class Describer:
    """Describes parts, and gathers the classes that they are made of."""

    hash_file: Callable[[Path], str]
    classes: set[type] = attrs.field(factory=set)
    """Whose source matters too."""

    def describe(self, value: Any, place: str) -> Any:
        """Raises IndescribableError, naming the place; OSError for a file that can't be read."""
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": repr(value)}
        if value is None or (isinstance(value, (bool, int, float, str)) and type(value).__module__ == "builtins"):
            return value
        if isinstance(value, Path):
            return {"path": self._path(value, place)}
        if isinstance(value, Described):
            return {"class": self._class(type(value), place), "description": value.description()}
        if isinstance(value, enum.Enum):
            return {"enum": self._class(type(value), place), "name": value.name}
        if isinstance(value, type):
            return {"type": self._class(value, place)}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        return self._collection(value, place)

    def _collection(self, value: Any, place: str) -> Any:
        if isinstance(value, Mapping):
            described = [
                [self.describe(key, place), self.describe(item, f"{place}[{key!r}]")] for key, item in value.items()
            ]
            return {"mapping": described}
        if isinstance(value, (list, tuple)):
            return [self.describe(item, f"{place}[{number}]") for number, item in enumerate(value)]
        if isinstance(value, (set, frozenset)):
            return {"set": sorted(orjson.dumps(self.describe(item, place)).decode() for item in value)}
        return self._part(value, place)

    def _part(self, value: Any, place: str) -> Any:
        kind = type(value)
        if attrs.has(kind):
            names = [field.name for field in attrs.fields(kind) if field.init]
        elif hasattr(value, "__dict__") and not vars(value):
            names = []
        else:
            raise IndescribableError(f"{place} is a {kind.__name__}, whose fields are not known (it is no attrs class)")
        described = {name: self.describe(vars_of(value, name), f"{place}.{name}") for name in names}
        return {"class": self._class(kind, place), "fields": described}

    def _class(self, kind: type, place: str) -> str:
        if "<locals>" in kind.__qualname__:
            raise IndescribableError(f"{place} is a {kind.__name__}, a class made inside a function")
        self.classes.add(kind)
        return f"{kind.__module__}:{kind.__qualname__}"

    def _path(self, path: Path, place: str) -> Any:
        if not path.exists():
            return None
        if path.is_dir():
            return [[name, self.hash_file(path / name)] for name in _files_in(path)]
        if not path.is_file():
            raise IndescribableError(f"{place} is {path}, which is no file")
        return self.hash_file(path)


def vars_of(value: Any, name: str) -> Any:
    """A field by its name."""
    return object.__getattribute__(value, name)


def _files_in(folder: Path) -> Iterator[str]:
    yield from sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
