"""The resolved tree as TOML: what ran, and who said it."""

from collections.abc import Iterator, Mapping
from typing import Any

from ike_core.config.interpolation import VERBATIM, escape
from ike_core.config.keys import Key, dotted, quoted
from ike_core.config.provenance import Provenance
from ike_core.config.schema import keys
from ike_core.config.sections import Sections
from ike_core.config.spelling import spelt

_HEADER = (
    "# Resolved by ike: every setting of a run and where it came from. Give it back as the only layer to run it again."
)


def to_toml(tree: Mapping[str, Any], provenance: Provenance) -> str:
    """Loads again to the same tree; the values of environment variables are not in the tree and so not here."""
    return "\n".join([_HEADER, *_table(tree, (), provenance)]) + "\n"


def _table(table: Mapping[str, Any], key: Key, provenance: Provenance) -> Iterator[str]:
    values = {name: value for name, value in table.items() if not isinstance(value, dict)}
    if key and (values or not table):
        yield f"\n[{dotted(key)}]"
    for name, value in values.items():
        inner = (*key, name)
        text = spelt(value if name in VERBATIM else _escaped(value))
        yield f"{quoted(name)} = {text}  # {_origin(inner, provenance)}"
    for name, value in sorted(table.items(), key=_place) if not key else table.items():
        if isinstance(value, dict):
            yield from _table(value, (*key, name), provenance)


def _place(item: tuple[str, Any]) -> int:
    """Tables in the order of sections.py, [user] last."""
    order = list(keys(Sections))
    return order.index(item[0]) if item[0] in order else len(order)


def _origin(key: Key, provenance: Provenance) -> str:
    origin = provenance.origin(key)
    return "override" if origin.override else " ".join(str(origin).split())


def _escaped(value: Any) -> Any:
    """Braces that are meant, so that they are read as such."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value
