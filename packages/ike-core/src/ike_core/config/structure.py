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

from ike_core.config.annotations import (
    ARRAYS,
    TABLES,
    describe,
    field_type,
    is_literal,
    is_open,
    is_tokenizer,
    is_union,
    name,
    origin,
)
from ike_core.config.keys import Key, hint
from ike_core.config.problems import Problems, briefly
from ike_core.config.provenance import Provenance, absolute

REFUSED: Any = attrs.NOTHING
"""Stands for a value that a problem was added for."""

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
        self.paths: dict[Key, str] = {}
        """Every path that was made absolute."""
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
        self.paths[self._key] = path
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
        return self.fields(self._key, annotation, value)

    def fields(
        self,
        key: Key,
        cls: type,
        table: Any,
        *,
        defaults: Mapping[str, Any] | None = None,
        tokenizer: Any = None,
    ) -> Any:
        """An instance of an attrs class from a table; REFUSED having said everything that is wrong with it."""
        if not isinstance(table, dict):
            self.problems.add(key, f" = {briefly(table)} must be a table")
            return REFUSED
        mark = len(self.problems)
        known = {field.alias or field.name: field for field in attrs.fields(cls) if field.init}
        arguments: dict[str, Any] = {}
        for said, value in table.items():
            if said in known:
                arguments[said] = self._field((*key, said), cls, known[said], value)
            else:
                self.problems.add((*key, said), unknown(said, known, f"field of {cls.__module__}:{name(cls)}"))
        for left_out, field in known.items():
            if left_out in table:
                continue
            if tokenizer is not None and _takes_tokenizer(cls, field):
                arguments[left_out] = tokenizer
            elif defaults and left_out in defaults:
                arguments[left_out] = defaults[left_out]
            elif field.default is attrs.NOTHING:
                what = "a tokenizer" if _takes_tokenizer(cls, field) else "it"
                self.problems.add((*key, left_out), f" is missing: {cls.__module__}:{name(cls)} needs {what}")
        return REFUSED if len(self.problems) > mark else self.construct(key, cls, arguments)

    def _field(self, key: Key, cls: type, field: "attrs.Attribute[Any]", value: Any) -> Any:
        try:
            annotation = field_type(cls, field)
        except NameError as error:
            self.problems.add(
                key,
                f" can't be checked: {cls.__module__} annotates it {field.type}, and at run time {error}; "
                "import that name outside `if TYPE_CHECKING`",
            )
            return REFUSED
        return self.value(key, annotation, value)

    def construct(self, key: Key, cls: type, arguments: Mapping[str, Any]) -> Any:
        """The instance; where the class refuses its arguments, what each validator says."""
        try:
            return cls(**arguments)
        except (ValueError, TypeError) as error:
            mark = len(self.problems)
            self._ask_validators(key, cls, arguments)
            if len(self.problems) == mark:
                self.problems.add(key, f": {cls.__module__}:{name(cls)} refuses it: {error}")
            return REFUSED

    def _ask_validators(self, key: Key, cls: type, arguments: Mapping[str, Any]) -> None:
        """attrs stops at the first refusal: ask every field's validator, on an instance that skipped them."""
        instance: object = object.__new__(cls)
        fields = [field for field in attrs.fields(cls) if field.init and (field.alias or field.name) in arguments]
        for field in fields:
            object.__setattr__(instance, field.name, arguments[field.alias or field.name])
        for field in fields:
            if field.validator is None or field.converter is not None:
                continue
            value = arguments[field.alias or field.name]
            try:
                field.validator(instance, field, value)
            except (ValueError, TypeError) as error:
                text = str(error.args[0]).removeprefix(f"'{field.name}' ").removesuffix(f": {value}")
                self.problems.add((*key, field.alias or field.name), f" = {briefly(value)} {text}")
            except AttributeError:  # it reads a field that was left out: `cls(**arguments)` has said what it says
                continue


def unknown(said: str, known: Mapping[str, Any], kind: str) -> str:
    """' is no field of my_lab:Focal; nearest: gamma'"""
    others = f"; there are: {', '.join(known)}" if known else "; it has none"
    return f" is no {kind}{hint(said, known) or others}"


def _takes_tokenizer(cls: type, field: "attrs.Attribute[Any]") -> bool:
    try:
        return is_tokenizer(field_type(cls, field))
    except NameError:
        return str(field.type).removesuffix(" | None") == "Tokenizer"


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
