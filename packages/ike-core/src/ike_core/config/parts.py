"""The parts of a tree against their sources: what is a path, what is text, what is no field."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from ike_core.config.importing import USES
from ike_core.config.instances import as_text, unknown
from ike_core.config.keys import Key, dotted, hint
from ike_core.config.problems import Problems
from ike_core.config.provenance import Provenance, absolute
from ike_core.config.schema import part_tables
from ike_core.config.source import PartSource, read_part

_PATH = re.compile(r"\bPath\b")
_TEXT = frozenset({"str", "str | None", "None | str", "Optional[str]"})


@attrs.frozen
class _Part:
    """A part's table and what its source says."""

    key: Key
    uses: str
    table: dict[str, Any]
    core: frozenset[str]
    """Keys of the table that are ike's."""
    source: PartSource

    def own(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self.table.items() if name not in self.core]


def _parts(tree: dict[str, Any], folders: Sequence[Path]) -> Iterator[_Part]:
    """Every part, those inside parts too."""
    waiting = [(key, table, core | {"uses"}) for key, table, core in part_tables(tree)]
    while waiting:
        key, table, core = waiting.pop(0)
        uses = table.get("uses")
        if isinstance(uses, str) and USES.fullmatch(uses):
            part = _Part(key, uses, table, frozenset(core), read_part(uses, folders))
            yield part
            for name, value in part.own():
                if isinstance(value, dict) and "uses" in value:
                    waiting.append(((*key, name), value, frozenset({"uses"})))


def settle_parts(tree: dict[str, Any], provenance: Provenance, folders: Sequence[Path]) -> None:
    """Makes a part's paths absolute, and an override of a string field its text, where the source tells them."""
    for part in _parts(tree, folders):
        for name, value in part.own():
            field = (part.source.fields or {}).get(name)
            origin = provenance.origin((*part.key, name))
            if field is not None and field.annotation in _TEXT:
                part.table[name] = as_text(value, origin)
            elif field is not None and _PATH.search(field.annotation):
                part.table[name] = _absolute(value, origin.folder)


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return absolute(value, folder) if value else value
    if isinstance(value, list):
        return [_absolute(item, folder) for item in value]
    if isinstance(value, dict) and "uses" not in value:
        return {name: _absolute(item, folder) for name, item in value.items()}
    return value


def check_sources(tree: dict[str, Any], folders: Sequence[Path], problems: Problems) -> tuple[str, ...]:
    """Adds what is wrong with parts' tables; returns a note for every part that could not be checked."""
    notes: list[str] = []
    for part in _parts(tree, folders):
        source = part.source
        where, uses = dotted(part.key), part.uses
        if source.wrong:
            problems.add(
                (*part.key, "uses"), f' = "{uses}": {source.wrong}{hint(uses.partition(":")[2], source.names)}'
            )
        elif not part.own():
            continue
        elif source.is_absent:
            package = uses.partition(":")[0].partition(".")[0]
            looked = "".join(f", nor in {folder}" for folder in folders)
            notes.append(f"{where}: {package} is not installed{looked}; the fields of {uses} were not checked")
        elif source.fields is None:
            notes.append(f"{where}: the fields of {uses} can't be read from its source and were not checked")
        else:
            known = dict.fromkeys([*source.fields, *sorted(part.core - {"uses"})])
            for name, _ in part.own():
                if name not in source.fields and (*part.key, name) not in problems:
                    problems.add((*part.key, name), unknown(name, known, f"field of {uses}"))
    return tuple(notes)
