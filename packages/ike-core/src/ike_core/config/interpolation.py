"""`{section.key}` in a string: the value there, of the resolved tree.

Only braces around a dotted name whose first part is one of ike's tables are replaced; `{{section.key}}` stands for such
a name itself, every other brace for itself.
"""

import re
from typing import Any

from ike_core.config.keys import Key, at, dotted, hint
from ike_core.config.problems import Problems
from ike_core.config.schema import keys
from ike_core.config.sections import Sections
from ike_core.config.spelling import spelt

VERBATIM = frozenset({"match", "freeze", "train", "files"})
"""Keys whose strings are regular expressions or globs: braces are theirs."""

_TABLES = "|".join([*keys(Sections), "user"])
_NAME = rf"(?:{_TABLES})(?:\.[A-Za-z0-9_-]+)+"
_REFERENCE = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")


def interpolate(tree: dict[str, Any], problems: Problems) -> None:
    """Replaces in place; a name that is not there, or that is made of itself, is a problem."""
    _Interpolation(tree, problems).table(tree, ())


def escape(text: str) -> str:
    """A resolved string, such that reading it again gives it again."""
    return re.sub(rf"\{{({_NAME})\}}", r"{{\1}}", text)


class _Interpolation:
    def __init__(self, tree: dict[str, Any], problems: Problems) -> None:
        self._tree = tree
        self._problems = problems
        self._done: dict[Key, Any] = {}
        self._open: list[Key] = []

    def table(self, table: dict[str, Any], key: Key) -> None:
        for name, value in table.items():
            inner = (*key, name)
            if isinstance(value, dict):
                self.table(value, inner)
            elif name not in VERBATIM:
                table[name] = self._value(inner, value)

    def _value(self, key: Key, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value((*key, index), item) for index, item in enumerate(value)]
        if not isinstance(value, str) or "{" not in value:
            return value
        if key not in self._done:
            self._open.append(key)
            self._done[key] = _REFERENCE.sub(lambda match: self._replacement(match, key), value)
            self._open.pop()
        return self._done[key]

    def _replacement(self, match: "re.Match[str]", key: Key) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        name: Key = tuple(match[2].split("."))
        if name in self._open:
            circle = " -> ".join(dotted(link) for link in (*self._open[self._open.index(name) :], name))
            return self._problem(key, match, f"is made of itself: {circle}")
        try:
            value = at(self._tree, name)
        except KeyError:
            known = [dotted(leaf) for leaf in _leaves(self._tree)]
            return self._problem(key, match, f"is no key{hint(match[2], known)}")
        if isinstance(value, dict | list):
            kind = "a table" if isinstance(value, dict) else "an array"
            return self._problem(key, match, f"is {kind}; only a single value can stand in a string")
        if name[-1] not in VERBATIM:
            value = self._value(name, value)
        return value if isinstance(value, str) else spelt(value)

    def _problem(self, key: Key, match: "re.Match[str]", message: str) -> str:
        self._problems.add(key, f": {match[0]} {message}; write {{{match[0]}}} where the braces are meant")
        return match[0]


def _leaves(tree: dict[str, Any], key: Key = ()) -> list[Key]:
    leaves: list[Key] = []
    for name, value in tree.items():
        leaves += _leaves(value, (*key, name)) if isinstance(value, dict) else [(*key, name)]
    return leaves
