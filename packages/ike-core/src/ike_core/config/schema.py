"""The tables of sections.py as a shape: which key is a table of ike's, a value, or a part's own."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import attrs

from ike_core.config.annotations import required
from ike_core.config.component import Component
from ike_core.config.conventions import ALTERNATIVES
from ike_core.config.keys import Key
from ike_core.config.sections import Sections


def section(annotation: Any) -> type | None:
    """The class of a table whose keys are ike's."""
    annotation = required(annotation)
    return (
        annotation if isinstance(annotation, type) and attrs.has(annotation) and annotation is not Component else None
    )


def named(annotation: Any) -> Any:
    """What stands under each name of a table of named tables, else None."""
    annotation = required(annotation)
    return get_args(annotation)[1] if get_origin(annotation) is Mapping else None


def holds_part(cls: type) -> bool:
    """Whether the table is a part's, core's own keys among the part's."""
    return any(field.name == "part" for field in attrs.fields(cls))


def keys(cls: type) -> "dict[str, attrs.Attribute[Any]]":
    """Core's keys of a table."""
    return {field.name: field for field in attrs.fields(cls) if field.name != "part"}


@attrs.frozen
class Place:
    """A key of ike's own as a tree has it: a table, a value, or a part's table."""

    key: Key
    annotation: Any
    value: Any


def places(tree: Any, cls: type = Sections, key: Key = ()) -> Iterator[Place]:
    """Every known key that `tree` has, tables before what is in them."""
    for name, field in keys(cls).items():
        if name in tree:
            yield from _places_at((*key, name), field.type, tree[name])


def _places_at(key: Key, annotation: Any, value: Any) -> Iterator[Place]:
    yield Place(key, annotation, value)
    if not isinstance(value, dict):
        return
    if inner := named(annotation):
        for name in list(value):
            yield from _places_at((*key, name), inner, value[name])
    elif cls := section(annotation):
        yield from places(value, cls, key)


def part_tables(tree: Any) -> Iterator[tuple[Key, dict[str, Any], frozenset[str]]]:
    """Every table that is a part's: its key, the table with core's keys in it, and which those are."""
    for place in places(tree):
        if isinstance(place.value, dict):
            cls = section(place.annotation)
            if required(place.annotation) is Component:
                yield place.key, place.value, frozenset()
            elif cls is not None and holds_part(cls):
                yield place.key, place.value, frozenset(keys(cls))


def annotation_at(key: Key) -> Any:
    """What `key` holds by sections.py; None where it is unknown, or a part's own."""
    annotation: Any = Sections
    for part in key:
        cls = section(annotation)
        if inner := named(annotation):
            annotation = inner
        elif cls is not None and part in keys(cls):
            annotation = keys(cls)[str(part)].type
        else:
            return None
    return annotation


def alternatives(key: Key) -> tuple[str, ...]:
    """Keys of the table at `key` of which a layer may say one."""
    return ALTERNATIVES.get(section(annotation_at(key)) or object, ())
