"""The resolved tree to typed sections; parts stay tables, as Components."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ike_core.config.annotations import required
from ike_core.config.component import Component
from ike_core.config.conventions import ALTERNATIVES, NEEDS_ONE, RESERVED
from ike_core.config.importing import USES
from ike_core.config.instances import REFUSED
from ike_core.config.keys import Key, dotted, nearest
from ike_core.config.problems import Problems, briefly
from ike_core.config.provenance import Provenance
from ike_core.config.schema import holds_part, keys, named, section
from ike_core.config.sections import Sections
from ike_core.config.structure import Structurer


class Tables:
    """Structures the tree; what is wrong goes to `problems`."""

    def __init__(self, provenance: Provenance, problems: Problems, import_from: tuple[Path, ...]) -> None:
        self._provenance = provenance
        self._problems = problems
        self._import_from = import_from
        self._structurer = Structurer(provenance, problems)

    @property
    def settled(self) -> Mapping[Key, Any]:
        """Values that the tree is to have otherwise than said: ike's own paths, absolute."""
        return self._structurer.settled

    def sections(self, tree: Mapping[str, Any]) -> Sections:
        """Only to be used where no problem was added."""
        own = {name: value for name, value in tree.items() if name != "user"}
        return cast(Sections, self._section(Sections, own, ()))

    def _section(self, cls: type, table: Any, key: Key) -> Any:
        if not isinstance(table, dict):
            return self._refuse(key, f" = {briefly(table)} must be a table")
        mark = len(self._problems)
        known = keys(cls)
        arguments = {
            name: self._value(field.type, table[name], (*key, name)) for name, field in known.items() if name in table
        }
        rest = {name: value for name, value in table.items() if name not in known}
        if holds_part(cls):
            arguments["part"] = self._component(rest, key, reserved=RESERVED[str(key[0])])
        else:
            for name, value in rest.items():
                self._unknown(name, value, known, key)
        self._missing(cls, table, key)
        return self._structurer.instances.construct(key, cls, arguments, since=mark)

    def _value(self, annotation: Any, value: Any, key: Key) -> Any:
        if inner := named(annotation):
            if not isinstance(value, dict):
                return self._refuse(key, f" = {briefly(value)} must be a table")
            return {name: self._value(inner, one, (*key, name)) for name, one in value.items()}
        if required(annotation) is Component:
            return self._component(value, key)
        cls = section(annotation)
        return self._section(cls, value, key) if cls else self._structurer.value(key, annotation, value)

    def _component(self, table: Any, key: Key, *, reserved: frozenset[str] = frozenset()) -> Any:
        if not isinstance(table, dict):
            return self._refuse(key, f' = {briefly(table)} must be a table with uses = "module:Name"')
        uses = table.get("uses")
        if uses is None:
            return self._refuse(key, ' needs uses = "module:Name"')
        if not isinstance(uses, str) or not USES.fullmatch(uses):
            return self._refuse((*key, "uses"), f' = {briefly(uses)} must read "module:Name"')
        for name in sorted(reserved & table.keys()):
            self._refuse((*key, name), " is no known key")
        return Component(
            path=dotted(key),
            uses=uses,
            table={name: value for name, value in table.items() if name != "uses"},
            key=key,
            reserved=frozenset({"uses", *reserved}),
            import_from=self._import_from,
            provenance=self._provenance,
        )

    def _unknown(self, name: str, value: Any, known: Mapping[str, Any], key: Key) -> None:
        """One problem a value, so that each is named in full."""
        if isinstance(value, dict) and value:
            for inner in value:
                self._unknown_value((*key, name, inner), name, known, key)
        else:
            self._unknown_value((*key, name), name, known, key)

    def _unknown_value(self, at: Key, name: str, known: Mapping[str, Any], key: Key) -> None:
        known = known if key else {**known, "user": None}
        near = [dotted((*key, one)) for one in nearest(name, known)] or _same_name(str(at[-1]))
        hint = f"; nearest: {', '.join(near)}" if near else f"; there are: {', '.join(known)}"
        self._refuse(at, f" is no known key{hint}")

    def _missing(self, cls: type, table: Mapping[str, Any], key: Key) -> None:
        for name, field in keys(cls).items():
            if name not in table and field.default is REFUSED:
                self._refuse((*key, name), " is missing")
        if cls in NEEDS_ONE and not any(name in table for name in ALTERNATIVES[cls]):
            self._refuse(key, f" needs one of {' and '.join(ALTERNATIVES[cls])}")

    def _refuse(self, key: Key, message: str) -> Any:
        self._problems.add(key, message)
        return REFUSED


def _same_name(name: str) -> list[str]:
    """Keys of other tables that read like `name`."""
    known = list(_all_keys(Sections, ()))
    near = nearest(name, [str(key[-1]) for key in known])
    return [dotted(key) for one in near for key in known if key[-1] == one][:3]


def _all_keys(cls: type, key: Key) -> "list[Key]":
    found: list[Key] = []
    for name, field in keys(cls).items():
        inner = section(field.type)
        found += _all_keys(inner, (*key, name)) if inner else [(*key, name)]
    return found
