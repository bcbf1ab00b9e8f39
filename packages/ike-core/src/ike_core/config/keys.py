"""A key's place in the tree of settings, and how it is written."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

Key = tuple[str | int, ...]
"""('optimizer', 'groups', 'head', 'match'); an int is a place in an array."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(key: Iterable[str | int]) -> str:
    """As a TOML file or an override writes it: optimizer.groups.head.match, a."b c", files[0]."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + quoted(part)
    return text


def quoted(part: str) -> str:
    """One part of a key, in quotes where TOML needs them."""
    if _BARE.fullmatch(part):
        return part
    escaped = "".join(
        f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else f"\\{c}" if c in '"\\' else c for c in part
    )
    return f'"{escaped}"'


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that read most like `name`, best first."""
    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)


def hint(name: str, known: Iterable[str]) -> str:
    """'; nearest: gamma', or '' where nothing is near."""
    near = nearest(name, known)
    return f"; nearest: {', '.join(near)}" if near else ""


def at(tree: Any, key: Key) -> Any:
    """The value at `key`; KeyError where there is none."""
    for part in key:
        if not isinstance(tree, dict if isinstance(part, str) else list):
            raise KeyError(key)
        try:
            tree = tree[part]  # type: ignore[index]
        except IndexError:
            raise KeyError(key) from None
    return tree


def put(tree: Any, key: Key, value: Any) -> None:
    """Replaces what is at `key`, or adds it to the table there."""
    holder: Any = at(tree, key[:-1])
    holder[key[-1]] = value
