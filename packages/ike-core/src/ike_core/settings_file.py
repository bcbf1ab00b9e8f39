"""`config.toml` of a run: what runs, and, where a run is gone on with, what it said before."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli

from ike_core.config import Config
from ike_core.config.keys import Key, dotted
from ike_core.config.spelling import spelt

NAME = "config.toml"
_CHANGED = "# Changed when the run was gone on with"


def write_settings(folder: Path, config: Config, *, after: str) -> None:
    """Over what is there, whose differing values stay as comments; `after`: the step gone on from, such as step-000500.

    The file is still the only layer that a run needs.
    """
    path, now = folder / NAME, config.to_toml()
    lines = []
    if path.exists():
        before = path.read_text(encoding="utf-8")
        lines = before[before.find(_CHANGED) :].splitlines() if _CHANGED in before else []
        changed = list(_differences(tomli.loads(before), tomli.loads(now)))
        if changed:
            lines += [f"{_CHANGED} after {after or 'its start'}; it said before:", *changed]
    path.write_text("\n".join([now.rstrip("\n"), *([""] if lines else []), *lines, ""]), encoding="utf-8")


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], key: Key = ()) -> Iterator[str]:
    for name in [*before, *(name for name in now if name not in before)]:
        inner, old, new = (*key, name), before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, inner)
        elif old != new:
            yield f"#   {dotted(inner)} = {'(nothing)' if old is None else spelt(old)}"
