"""What a run file leaves out: the sections' defaults, the parts' `uses`, and what data.valid takes from data.train."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_core.config.conventions import ALTERNATIVES, DEFAULT_USES
from ike_core.config.keys import Key
from ike_core.config.layers import Layer
from ike_core.config.merge import Merged
from ike_core.config.provenance import Origin
from ike_core.config.schema import keys, named, section
from ike_core.config.sections import Sections

INHERITED = ("processor", "max_tokens", "too_long")
"""What a `[data.valid.<name>]`, and a source, takes from `[data.train]`; its own go over it."""


def default_layer() -> Layer:
    """The parts that are there unless removed."""
    trackers = {key.removeprefix("trackers."): {"uses": uses} for key, uses in DEFAULT_USES.items() if "." in key}
    others = {key: {"uses": DEFAULT_USES[key]} for key in ("tokenizer", "checkpoint")}
    return Layer({**others, "trackers": trackers}, Origin(), {})


def inherit_training_data(merged: Merged) -> None:
    """Lays each `[data.valid.<name>]`, and each source, over what it inherits, which keeps the origins it had."""
    data = merged.tree.get("data")
    train = data.get("train") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(train, dict):
        return
    base = {name: train[name] for name in INHERITED if name in train}
    for key, tables in ((("data", "valid"), data.get("valid")), (("data", "train", "sources"), train.get("sources"))):
        for name, own in tables.items() if isinstance(tables, dict) else ():
            if isinstance(own, dict):
                _inherit(merged, own, (*key, name), base, ("data", "train"))


def _inherit(merged: Merged, own: dict[str, Any], key: Key, base: Mapping[str, Any], base_key: Key) -> None:
    if "uses" in own and own["uses"] != base.get("uses", own["uses"]):
        return
    for name, value in base.items():
        inner, base_inner = (*key, name), (*base_key, name)
        if isinstance(value, dict):
            merged.provenance.open(inner, merged.provenance.origin(base_inner))
            if isinstance(table := own.setdefault(name, {}), dict):
                _inherit(merged, table, inner, value, base_inner)
        elif name not in own:
            own[name] = value
            merged.provenance.say(inner, value, merged.provenance.origin(base_inner))


def fill(merged: Merged) -> None:
    """Adds every default that stands; a default never joins an alternative that is said."""
    for key, uses in DEFAULT_USES.items():
        table = merged.tree.get(key)
        if isinstance(table, dict) and "uses" not in table:
            _say(merged, table, (key,), "uses", uses)
    for key in ("engine", "optimizer", "schedule"):
        if key not in merged.tree:
            merged.tree[key] = {}
            _say(merged, merged.tree[key], (key,), "uses", DEFAULT_USES[key])
    _fill_table(merged, merged.tree, Sections, (), {})


def _fill_table(merged: Merged, table: dict[str, Any], cls: type, key: Key, instead: Mapping[str, Any]) -> None:
    """`instead` are defaults that the table around this one gives it."""
    said = [name for name in ALTERNATIVES.get(cls, ()) if name in table]
    for name, field in keys(cls).items():
        inner = (*key, name)
        if name not in table:
            default = instead.get(name, plain(_default(field)))
            is_alternative = name in ALTERNATIVES.get(cls, ())
            if default in (None, {}) or (is_alternative and (said or not default)):
                continue
            _say(merged, table, key, name, default)
        else:
            _fill_value(merged, table[name], field, inner)


def _fill_value(merged: Merged, value: Any, field: "attrs.Attribute[Any]", key: Key) -> None:
    if not isinstance(value, dict):
        return
    if cls := section(field.type):
        _fill_table(merged, value, cls, key, plain(_default(field)) or {})
    elif (inner := named(field.type)) and (cls := section(inner)):
        for name, table in value.items():
            if isinstance(table, dict):
                _fill_table(merged, table, cls, (*key, name), {})


def _say(merged: Merged, table: dict[str, Any], key: Key, name: str, value: Any) -> None:
    if isinstance(value, dict):
        table[name] = {}
        for inner, inner_value in value.items():
            _say(merged, table[name], (*key, name), inner, inner_value)
    else:
        table[name] = value
        merged.provenance.say((*key, name), value, Origin())


def _default(field: "attrs.Attribute[Any]") -> Any:
    if field.default is attrs.NOTHING:
        return None
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """As TOML says it: tables, arrays and scalars; None is left out."""
    if attrs.has(type(value)):
        return {name: plain(inner) for name in keys(type(value)) if (inner := getattr(value, name)) is not None}
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value
