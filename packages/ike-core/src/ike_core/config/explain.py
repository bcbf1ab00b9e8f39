"""Why a setting is what it is."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ike_core.config.keys import Key, at, dotted, hint
from ike_core.config.kinds import kind
from ike_core.config.provenance import Provenance
from ike_core.config.schema import part_tables
from ike_core.config.source import read_part
from ike_core.config.spelling import spelt
from ike_core.errors import ConfigError


def explain(key: Key, tree: Mapping[str, Any], provenance: Provenance, folders: Sequence[Path]) -> str:
    """Lines for the value at `key`, or for each under it."""
    try:
        value = at(tree, key)
    except KeyError:
        if said := _part_default(key, tree, folders):
            return said
        known = [dotted(leaf) for leaf, _ in _leaves(tree, ())]
        raise ConfigError(f"{dotted(key)} is not set{hint(dotted(key), known)}") from None
    leaves = _leaves(value, key) if isinstance(value, dict) else [(key, value)]
    return "\n".join(_leaf(leaf, one, provenance) for leaf, one in leaves)


def _leaves(tree: Any, key: Key) -> Iterator[tuple[Key, Any]]:
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            yield from _leaves(value, (*key, name))
    else:
        yield key, tree


def _leaf(key: Key, value: Any, provenance: Provenance) -> str:
    history = provenance.history(key)
    origin = provenance.origin(key)
    lines = [f"{dotted(key)} = {spelt(value)}  ({origin}; {kind(key)})"]
    for said in reversed(history[:-1]):
        lines.append(f"  overrode {dotted(said.key)} = {spelt(said.value)}  ({said.origin})")
    if history and history[-1].value != value:
        lines.append(f"  written {spelt(history[-1].value)}")
    return "\n".join(lines)


def _part_default(key: Key, tree: Mapping[str, Any], folders: Sequence[Path]) -> str:
    """What a part's class gives a field that no layer sets; '' where that can't be told."""
    for table_key, table, _ in part_tables(tree):
        if table_key == key[:-1]:
            source = read_part(table["uses"], folders)
            field = (source.fields or {}).get(str(key[-1]))
            if field is not None:
                default = "no default" if field.default is None else f"default {field.default}"
                return (
                    f"{dotted(key)} is not set: {default} of {table['uses']} ({source.file}:{source.line}; {kind(key)})"
                )
    return ""
