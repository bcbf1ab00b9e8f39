"""Laying one layer over another: tables merge, scalars and arrays replace, a changed `uses` starts its table empty."""

from collections.abc import Mapping
from typing import Any

from ike_core.config.conventions import DEFAULT_USES
from ike_core.config.keys import Key, at, dotted, hint
from ike_core.config.layers import Layer
from ike_core.config.problems import Problems, briefly
from ike_core.config.provenance import Provenance, Said
from ike_core.config.schema import alternatives


class Merged:
    """What stands after the layers so far, and who said it."""

    def __init__(self, problems: Problems) -> None:
        self.tree: dict[str, Any] = {}
        self.provenance = Provenance()
        self._problems = problems

    def lay(self, layer: Layer) -> None:
        """Later wins."""
        for key in layer.removals:
            self._remove(key)
        self._lay_table(self.tree, layer.tree, (), layer)

    def _remove(self, key: Key) -> None:
        try:
            table = at(self.tree, key[:-1])
            del table[key[-1]]
        except (KeyError, TypeError):
            near = hint(dotted(key), self._table_names(self.tree))
            self._problems.add(key, f" is nothing that could be removed{near} (override ~{dotted(key)})")
        self.provenance.forget(key)

    def _table_names(self, tree: Mapping[str, Any], key: Key = ()) -> list[str]:
        names: list[str] = []
        for name, value in tree.items():
            if isinstance(value, dict):
                names += [dotted((*key, name)), *self._table_names(value, (*key, name))]
        return names

    def _lay_table(self, table: dict[str, Any], over: Mapping[str, Any], key: Key, layer: Layer) -> None:
        if key[:1] != ("user",):
            self._start_empty_where_uses_changes(table, over, key)
        overrode = self._drop_alternatives(table, over, key, layer)
        for name, value in over.items():
            inner = (*key, name)
            if isinstance(value, dict):
                if not isinstance(table.get(name), dict):
                    self.provenance.forget(inner)
                    table[name] = {}
                self.provenance.open(inner, layer.origin_of(inner))
                self._lay_table(table[name], value, inner, layer)
            else:
                if isinstance(table.get(name), dict):
                    self.provenance.forget(inner)
                table[name] = value
                self.provenance.say(inner, value, layer.origin_of(inner))
            if name in alternatives(key):
                self.provenance.inherit(inner, overrode)

    def _start_empty_where_uses_changes(self, table: dict[str, Any], over: Mapping[str, Any], key: Key) -> None:
        """No `uses` said yet, and none by default, is no change."""
        before = table.get("uses", DEFAULT_USES.get(dotted(key)))
        if "uses" in over and before is not None and over["uses"] != before:
            table.clear()
            origin = self.provenance.origin(key)
            self.provenance.forget(key)
            self.provenance.open(key, origin)

    def _drop_alternatives(self, table: dict[str, Any], over: Mapping[str, Any], key: Key, layer: Layer) -> list[Said]:
        """One of several alternatives takes out the others; what they were is returned."""
        group = alternatives(key)
        named = [name for name in group if name in over]
        if len(named) > 1:
            values = " and ".join(f"{name} = {briefly(over[name])} ({layer.origin_of((*key, name))})" for name in named)
            self._problems.add(key, f" is given {values}; say one of them")
        if not named:
            return []
        overrode: list[Said] = []
        for name in group:
            if name not in named and table.pop(name, None) is not None:
                overrode += self.provenance.forget((*key, name))
        return overrode
