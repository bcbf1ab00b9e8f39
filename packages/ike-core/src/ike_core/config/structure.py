"""Plain values to typed ones. No coercion: "1e-4" is no number, true no integer, 2.7 neither; 1 is a fine float.

cattrs finds the hook for an annotation; the hooks here refuse where its own would convert, and know the key they stand
at, so that all problems of a table are found at once and each has its line.
"""

import math
import os
from collections.abc import Callable, Mapping, MutableSequence, MutableSet
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args

import attrs
from cattrs import Converter
from cattrs.errors import StructureHandlerNotFoundError

from ike_core.config.annotations import (
    ARRAYS,
    TABLES,
    describe,
    is_literal,
    is_open,
    is_union,
    origin,
)
from ike_core.config.instances import REFUSED, Instances
from ike_core.config.keys import Key, hint
from ike_core.config.problems import Problems, briefly
from ike_core.config.provenance import Provenance, absolute

_KINDS: Mapping[type, type] = {list: list, MutableSequence: list, set: set, MutableSet: set, frozenset: frozenset}
"""What an array becomes; a tuple otherwise."""


class Structurer:
    """Structures one table.

    `part` builds what a table with `uses` names; `reads_environment` allows a string to be { env = "NAME" }.
    """

    def __init__(
        self,
        provenance: Provenance,
        problems: Problems,
        *,
        part: Callable[[Key, Mapping[str, Any]], Any] | None = None,
        reads_environment: bool = False,
    ) -> None:
        self.provenance = provenance
        self.problems = problems
        self.settled: dict[Key, Any] = {}
        """What a layer says otherwise than the resolved tree: paths are absolute there, overrides of strings text."""
        self.instances = Instances(provenance, problems, self.value, self.settled)
        self._part = part
        self._reads_environment = reads_environment
        self._key: Key = ()
        self._converter = self._with_hooks(Converter())

    def _with_hooks(self, converter: Converter) -> Converter:
        hooks: list[tuple[Callable[[Any], bool], Callable[[Any, Any], Any]]] = [
            (lambda annotation: isinstance(annotation, type), self._instance),
            (lambda annotation: isinstance(annotation, type) and attrs.has(annotation), self._class),
            (lambda annotation: isinstance(annotation, type) and issubclass(annotation, Enum), self._enum),
            (is_open, self._open),
            (is_union, self._union),
            (is_literal, self._literal),
            (lambda annotation: origin(annotation) in ARRAYS, self._array),
            (lambda annotation: origin(annotation) in TABLES, self._table),
        ]
        for fits, hook in hooks:  # the later fits first
            converter.register_structure_hook_func(fits, hook)
        for scalar in (bool, int, str):
            converter.register_structure_hook(scalar, self._scalar)
        converter.register_structure_hook(float, self._float)
        converter.register_structure_hook(Path, self._path)
        return converter

    def value(self, key: Key, annotation: Any, value: Any) -> Any:
        """The typed value; REFUSED having said why."""
        outer, self._key = self._key, key
        try:
            return self._converter.structure(value, annotation)
        except (ValueError, TypeError) as error:
            return self._refuse(f" = {briefly(value)}: {error}")
        except StructureHandlerNotFoundError:
            return self._refuse(f" = {briefly(value)}: it is annotated {annotation}, which no table can say")
        finally:
            self._key = outer

    def _refuse(self, message: str) -> Any:
        self.problems.add(self._key, message)
        return REFUSED

    def _expected(self, annotation: Any, value: Any) -> Any:
        return self._refuse(f" = {briefly(value)} must be {describe(annotation)}{_instead(annotation, value)}")

    # -- one value ------------------------------------------------------------------------------------------------

    def _scalar(self, value: Any, annotation: Any) -> Any:
        if annotation is str and isinstance(value, dict) and value.keys() == {"env"}:
            return self._environment(value["env"])
        if issubclass(annotation, Enum):  # cattrs asks for a StrEnum's hook as for a str's
            return self._enum(value, annotation)
        return value if type(value) is annotation else self._expected(annotation, value)

    def _environment(self, variable: Any) -> Any:
        if not isinstance(variable, str):
            return self._expected(str, variable)
        if not self._reads_environment:
            return self._refuse(f" = {{ env = {variable!r} }}: only a part's own fields are read from the environment")
        if variable not in os.environ:
            return self._refuse(f" is read from the environment variable {variable}, which is not set")
        return os.environ[variable]

    def _float(self, value: Any, annotation: Any) -> Any:
        if type(value) not in (int, float):
            return self._expected(annotation, value)
        return float(value) if math.isfinite(value) else self._refuse(f" = {value} is no finite number")

    def _path(self, value: Any, annotation: Any) -> Any:
        if not isinstance(value, str):
            return self._expected(annotation, value)
        path = absolute(value, self.provenance.origin(self._key).folder)
        self.settled[self._key] = path
        return Path(path)

    def _literal(self, value: Any, annotation: Any) -> Any:
        known = get_args(annotation)
        if any(type(value) is type(one) and value == one for one in known):
            return value
        near = hint(value, [one for one in known if isinstance(one, str)]) if isinstance(value, str) else ""
        return self._refuse(f" = {briefly(value)} must be {describe(annotation)}{near}")

    def _enum(self, value: Any, annotation: Any) -> Any:
        """By its value, as a literal of all values."""
        allowed = self._literal(value, Literal[tuple(member.value for member in annotation)])
        return allowed if allowed is REFUSED else annotation(allowed)

    def _union(self, value: Any, annotation: Any) -> Any:
        """The first member that takes it."""
        members = [member for member in get_args(annotation) if member is not type(None)]
        mark = len(self.problems)
        for member in members:
            structured = self.value(self._key, member, value)
            found = self.problems.since(mark)
            if not found:
                return structured
        if len(members) == 1 or isinstance(value, dict):
            self.problems.extend(found)
            return REFUSED
        return self._expected(annotation, value)

    # -- several --------------------------------------------------------------------------------------------------

    def _array(self, value: Any, annotation: Any) -> Any:
        if not isinstance(value, list):
            return self._expected(annotation, value)
        types = get_args(annotation) or (Any, ...)
        if origin(annotation) is tuple and ... not in types:
            if len(types) != len(value):
                return self._refuse(f" = {briefly(value)} must have {len(types)} items, has {len(value)}")
        else:
            types = (types[0],) * len(value)
        items = [
            self.value((*self._key, index), kind, item)
            for index, (kind, item) in enumerate(zip(types, value, strict=True))
        ]
        return REFUSED if any(item is REFUSED for item in items) else _KINDS.get(origin(annotation), tuple)(items)

    def _table(self, value: Any, annotation: Any) -> Any:
        if not isinstance(value, dict):
            return self._expected(annotation, value)
        inner = (get_args(annotation) or (str, Any))[1]
        items = {name: self.value((*self._key, name), inner, item) for name, item in value.items()}
        return REFUSED if any(item is REFUSED for item in items.values()) else items

    # -- parts and classes ----------------------------------------------------------------------------------------

    def _open(self, value: Any, annotation: Any) -> Any:
        if self._part is not None and isinstance(value, dict) and "uses" in value:
            return self._part(self._key, value)
        return value if annotation in (Any, object) else self._expected(annotation, value)

    def _instance(self, value: Any, annotation: Any) -> Any:
        """A class that a table can't spell: an instance of it (a date, say), or a part that makes one."""
        if self._part is not None and isinstance(value, dict) and "uses" in value:
            return self._part(self._key, value)
        return value if isinstance(value, annotation) else self._expected(annotation, value)

    def _class(self, value: Any, annotation: Any) -> Any:
        if isinstance(value, dict) and "uses" in value and "uses" not in attrs.fields_dict(annotation):
            return self._instance(value, annotation)
        return self.instances.of(self._key, annotation, value)


def _instead(annotation: Any, value: Any) -> str:
    """What the user most likely meant to write."""
    if isinstance(value, str) and annotation in (bool, int, float):
        return f"; without quotes: {value}" if _reads_as(annotation, value) else ""
    if isinstance(value, str) and origin(annotation) in ARRAYS:
        return f'; in brackets: ["{value}"]'
    return ""


def _reads_as(annotation: Any, value: str) -> bool:
    if annotation is bool:
        return value in ("true", "false")
    try:
        annotation(value)
    except ValueError:
        return False
    return True
