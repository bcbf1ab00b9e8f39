"""Which keys are identity and which mechanics."""

from typing import Any, Literal

import attrs

from ike_core.config.keys import Key
from ike_core.config.schema import keys, named, section
from ike_core.config.sections import Sections

Kind = Literal["identity", "mechanics"]


def kind(key: Key) -> Kind:
    """Identity unless a field on the way says mechanics; a part's own keys are what the part is."""
    if key[0] == "user":
        return "mechanics"
    if key[:2] == ("engine", "raw"):  # what is handed on to DeepSpeed may change an update
        return "identity"
    annotation: Any = Sections
    for part in key:
        if inner := named(annotation):
            annotation = inner
            continue
        cls = section(annotation)
        if cls is None:
            break
        field = keys(cls).get(str(part)) or attrs.fields_dict(cls)["part"]
        if field.metadata["kind"] == "mechanics":
            return "mechanics"
        annotation = field.type
    return "identity"


def identity_only(tree: dict[str, Any], key: Key = ()) -> dict[str, Any]:
    """The tree without mechanics; tables that are left empty are gone."""
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        inner = (*key, name)
        if isinstance(value, dict) and value:
            if table := identity_only(value, inner):
                kept[name] = table
        elif kind(inner) == "identity":
            kept[name] = value
    return kept
