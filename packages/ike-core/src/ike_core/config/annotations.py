"""What a class says of its fields: their types, resolved one by one, and how a message names them."""

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from pathlib import Path
from typing import Any, Literal, Protocol, Union, get_args, get_origin

import attrs

ARRAYS = (tuple, list, set, frozenset, Sequence, MutableSequence, Set, MutableSet, Iterable, collections.abc.Collection)
TABLES = (dict, Mapping, MutableMapping)
_NAMES: Mapping[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Path: "a path in quotes",
    type(None): "nothing",
}


def origin(annotation: Any) -> Any:
    """`tuple` of `tuple[int, ...]`, `X` of `X`."""
    return get_origin(annotation) or annotation


def is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def required(annotation: Any) -> Any:
    """X of `X | None`."""
    members = [member for member in get_args(annotation) if member is not type(None)]
    return members[0] if is_union(annotation) and len(members) == 1 else annotation


def is_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal


def is_protocol(annotation: Any) -> bool:
    return isinstance(annotation, type) and Protocol in annotation.__bases__


def is_open(annotation: Any) -> bool:
    """Whether only what a part can do is said, not what it is."""
    return annotation in (Any, object) or origin(annotation) in (Callable, typing.Callable) or is_protocol(annotation)


def is_tokenizer(annotation: Any) -> bool:
    """`Tokenizer`, or `Tokenizer | None`: ike's Protocol, or one of that name of the user's own."""
    if is_union(annotation):
        return any(is_tokenizer(member) for member in get_args(annotation))
    return is_protocol(annotation) and annotation.__name__ == "Tokenizer"


def describe(annotation: Any) -> str:
    """For 'must be ...': an integer, "auto" or "off", an array, a table with `uses`."""
    if annotation in _NAMES:
        return _NAMES[annotation]
    if is_literal(annotation):
        return " or ".join(f'"{value}"' if isinstance(value, str) else repr(value) for value in get_args(annotation))
    if is_union(annotation):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return " or ".join(dict.fromkeys(describe(member) for member in members))
    if origin(annotation) in ARRAYS:
        items = [item for item in get_args(annotation) if item is not Ellipsis]
        return f"an array, each {describe(items[0])}" if len(set(items)) == 1 else "an array"
    if origin(annotation) in TABLES or (isinstance(annotation, type) and attrs.has(annotation)):
        return "a table"
    return "a table with `uses`" if is_open(annotation) else f"a {name(annotation)}"


def name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def field_type(cls: type, field: "attrs.Attribute[Any]") -> Any:
    """The field's type; NameError where the module does not have the name it is written with.

    One by one: a name that is only there for the type checker spoils no other field.
    """
    if field.type is None:
        return Any
    if not isinstance(field.type, str):
        return field.type
    owner = next(base for base in cls.__mro__ if field.name in inspect.get_annotations(base))
    holder = types.SimpleNamespace(__annotations__={"field": field.type})
    module = sys.modules[owner.__module__]
    return typing.get_type_hints(holder, vars(module), dict(vars(owner)), include_extras=True)["field"]
