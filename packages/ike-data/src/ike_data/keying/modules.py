"""The source that a class is made of: its module, and what that imports from the user's own folders.

Only text is read (by `ast`); nothing is imported. Installed packages and the standard library are not followed: they
change by version, and a difference that this misses is found by the rows that are processed afresh at each start.
"""

import ast
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import SOURCE_SUFFIXES
from pathlib import Path

import attrs
from xxhash import xxh3_128

_OWN = "ike_data"
"""Followed wherever it is installed; its `__init__`, which names all of it, is looked through."""


class NoSourceError(Exception):
    """A class whose source can't be found. Says which, and why."""


@attrs.define
class Sources:
    """Sources by module, as they are followed."""

    hashes: dict[str, str] = attrs.field(factory=dict)
    """Module -> hash of its source."""
    _seen: set[str] = attrs.field(factory=set)
    """Names that were looked for, modules or not."""

    def follow_class(self, kind: type) -> None:
        """Adds the module of a class, and what it imports. Raises NoSourceError."""
        if kind.__module__ == "builtins" or is_installed(kind.__module__):
            return
        if _file(kind.__module__) is None:
            raise NoSourceError(f"the source of {kind.__qualname__} is not in a file (module {kind.__module__})")
        self.follow(kind.__module__)

    def follow(self, module: str) -> None:
        """Adds a module, and what it imports. What is installed, or no module, is passed over."""
        if module in self._seen:
            return
        self._seen.add(module)
        if is_installed(module):
            return
        file = _file(module)
        if file is None:
            return
        try:
            source = file.read_bytes()
            imported = _imported(source, module, file.stem == "__init__")
        except (OSError, SyntaxError, ValueError) as error:
            raise NoSourceError(f"{file} can't be read: {error}") from error
        self.hashes[module] = xxh3_128(source).hexdigest()
        for name in imported:
            self.follow(name)


def is_installed(module: str) -> bool:
    """Whether a module is of the standard library or of an installed package that is not ike-data."""
    package = module.partition(".")[0]
    if package == _OWN:
        return False
    file = _file(module)
    if file is None:
        return package in sys.stdlib_module_names
    return package.startswith("ike_") or any(place in f"{file}" for place in _libraries())


def _file(module: str) -> Path | None:
    """Where the module was loaded from, or would be."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        name = vars(loaded).get("__file__")
        return Path(name) if name and name.endswith(tuple(SOURCE_SUFFIXES)) and os.path.isfile(name) else None
    if module.partition(".")[0] in sys.stdlib_module_names:
        return None
    path = module.replace(".", os.sep)
    for root in sys.path:
        for name in (f"{path}.py", os.path.join(path, "__init__.py")):
            file = os.path.join(root, name)
            if os.path.isfile(file):
                return Path(file)
    return None


@lru_cache(maxsize=1)
def _libraries() -> tuple[str, ...]:
    """What paths of installed modules have in them."""
    named = (f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
    paths = (f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return (*named, *paths)


@lru_cache(maxsize=1024)
def _imported(source: bytes, module: str, is_package: bool) -> tuple[str, ...]:
    """Names of modules that a source may import; several datasets of a run have their processor's code in common."""
    return tuple(dict.fromkeys(_imports(ast.parse(source), module, is_package=is_package)))


def _imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """Names of modules that a module may import, also inside functions; some are no modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module, is_package=is_package)
            yield from _with_parents(base)
            for alias in node.names:
                yield _home(base, alias.name)


def _with_parents(module: str) -> Iterable[str]:
    """a.b.c: a, a.b, a.b.c: importing the last runs the `__init__` of the others."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return (name for name in names if name != _OWN)


def _home(base: str, name: str) -> str:
    """Where a name of a package comes from: of ike-data's own public names the module, else the submodule it may be."""
    own = sys.modules[_OWN]
    found = getattr(own, name) if base == _OWN and name in own.__all__ else None
    return found.__module__ if isinstance(found, type) or callable(found) else f"{base}.{name}"


def _base(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    package = parts[: len(parts) - node.level + is_package]
    return ".".join([*package, node.module] if node.module else package)
