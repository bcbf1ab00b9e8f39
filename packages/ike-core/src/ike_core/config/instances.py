"""A table to an instance of an attrs class: its fields, its validators, and all that is wrong at once."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ike_core.config.annotations import field_type, is_tokenizer, name, required
from ike_core.config.keys import Key, hint
from ike_core.config.problems import Problems, briefly
from ike_core.config.provenance import Origin, Provenance
from ike_core.errors import ConfigError

REFUSED: Any = attrs.NOTHING
"""Stands for a value that a problem was added for."""


@attrs.frozen
class Instances:
    """Makes them; a field's value is structured by `value`."""

    provenance: Provenance
    problems: Problems
    value: Callable[[Key, Any, Any], Any]
    """(key, annotation, plain value) -> typed value, or REFUSED."""
    settled: dict[Key, Any]
    """Values that the resolved tree has otherwise than a layer says them."""

    def of(
        self,
        key: Key,
        cls: type,
        table: Any,
        *,
        defaults: Mapping[str, Any] | None = None,
        tokenizer: Any = None,
        called: str = "",
    ) -> Any:
        """The instance, or REFUSED; `defaults` and `tokenizer` fill fields that the table leaves out.

        `called` is what the user calls the class, where that is not where it is defined.
        """
        called = called or f"{cls.__module__}:{name(cls)}"
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
                self.problems.add((*key, said), unknown(said, known, f"field of {called}"))
        for left_out, field in known.items():
            if left_out in table:
                continue
            if tokenizer is not None and _takes_tokenizer(cls, field):
                arguments[left_out] = tokenizer
            elif defaults and left_out in defaults:
                arguments[left_out] = defaults[left_out]
            elif field.default is attrs.NOTHING:
                what = "a tokenizer" if _takes_tokenizer(cls, field) else "it"
                self.problems.add((*key, left_out), f" is missing: {called} needs {what}")
        return self.construct(key, cls, arguments, since=mark, called=called)

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
        if required(annotation) is str:
            text = as_text(value, self.provenance.origin(key))
            if text is not value:
                self.settled[key] = value = text
        return self.value(key, annotation, value)

    def construct(self, key: Key, cls: type, arguments: Mapping[str, Any], *, since: int, called: str = "ike") -> Any:
        """The instance; REFUSED where problems were added after the first `since`, or where the class refuses."""
        error: Exception | None = None
        if len(self.problems) == since:
            try:
                return cls(**arguments)
            except (ValueError, TypeError, ConfigError) as caught:
                error = caught
        self._ask_validators(key, cls, {said: value for said, value in arguments.items() if value is not REFUSED})
        if len(self.problems) == since:
            self.problems.add(key, f": {called} refuses it: {error}")
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
            said = field.alias or field.name
            try:
                field.validator(instance, field, arguments[said])
            except (ValueError, TypeError) as error:
                text = str(error.args[0] if error.args else error)
                text = text.removeprefix(f"'{field.name}' ").removesuffix(f": {arguments[said]}")
                value = "" if isinstance(arguments[said], dict) else f" = {briefly(arguments[said])}"  # a table is long
                self.problems.add((*key, said), f"{value} {text}")
            except AttributeError:  # it reads another field, which is not there: that one has its own problem
                continue


def as_text(value: Any, origin: Origin) -> Any:
    """An override of a string field is its raw text unless quoted: run.name=123 is "123"."""
    return value if origin.raw is None or isinstance(value, str | dict) else origin.raw


def unknown(said: str, known: Mapping[str, Any], kind: str) -> str:
    """' is no field of my_lab:Focal; nearest: gamma'"""
    others = f"; there are: {', '.join(known)}" if known else "; it has none"
    return f" is no {kind}{hint(said, known) or others}"


def _takes_tokenizer(cls: type, field: "attrs.Attribute[Any]") -> bool:
    try:
        return is_tokenizer(field_type(cls, field))
    except NameError:
        return str(field.type).removesuffix(" | None") == "Tokenizer"
