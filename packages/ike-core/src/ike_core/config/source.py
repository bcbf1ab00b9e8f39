"""A part's fields, read from its source by `ast`: nothing is imported, so nothing of anyone's runs."""

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import attrs

from ike_core.config.field_source import FieldSource, bound, last_name, own_fields

_ATTRS = frozenset({"frozen", "define", "mutable", "attrs", "s", "attributes"})
_HARMLESS_BASES = frozenset({"object", "Protocol", "Generic"})
_DEPTH = 8
"""Re-exports followed before giving up: a circle of them ends too."""


@attrs.frozen
class PartSource:
    """What can be told of `module:Name` without importing it."""

    file: Path | None = None
    line: int = 0
    fields: Mapping[str, FieldSource] | None = None
    """None: can't be told."""
    is_absent: bool = False
    """The package is neither installed nor in one of the folders."""
    wrong: str = ""
    """Why importing it can't succeed."""
    names: tuple[str, ...] = ()
    """Where the name is wrong: those that are there."""


UNKNOWN = PartSource()


def read_part(uses: str, folders: Sequence[Path]) -> PartSource:
    """Follows `from x import Name` to the class, and its bases."""
    module, name = uses.split(":")
    if module == "__main__":
        return UNKNOWN
    return _look_up(module, name, tuple(folders), _DEPTH)


def _look_up(module: str, name: str, folders: tuple[Path, ...], depth: int) -> PartSource:
    try:
        spec = _find(module, folders)
    except ModuleNotFoundError as error:
        is_top = error.name == module.partition(".")[0]
        return PartSource(is_absent=True) if is_top else PartSource(wrong=f"there is no module {error.name}")
    if spec.origin is None or not spec.origin.endswith(".py") or depth == 0:
        return UNKNOWN
    file = Path(spec.origin)
    try:
        tree = _parse(file, file.stat().st_mtime_ns)
    except SyntaxError as error:
        return PartSource(file, wrong=f"{file}:{error.lineno}: {error.msg}")
    return _Module(file, module, bool(spec.submodule_search_locations), tree, folders, depth).part(name)


def _find(module: str, folders: tuple[Path, ...]) -> ModuleSpec:
    """Where the module is. Only finders run: asking importlib for a dotted name would import its parents."""
    parts = module.split(".")
    spec: ModuleSpec | None
    try:
        spec = importlib.util.find_spec(parts[0])
    except ValueError:  # a module without a spec, like __main__
        spec = None
    spec = spec or PathFinder.find_spec(parts[0], [str(folder) for folder in folders])
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        if length > 1 and spec is not None:
            spec = PathFinder.find_spec(name, list(spec.submodule_search_locations or []))
        if spec is None:
            raise ModuleNotFoundError(name=name)
    assert spec is not None
    return spec


@functools.lru_cache(maxsize=64)
def _parse(file: Path, _modified: int) -> ast.Module:
    return ast.parse(file.read_bytes(), str(file))


@attrs.frozen
class _Module:
    file: Path
    name: str
    is_package: bool
    tree: ast.Module
    folders: tuple[Path, ...]
    depth: int

    def part(self, name: str) -> PartSource:
        names: list[str] = []
        is_open = False
        for statement in _statements(self.tree.body):
            match statement:
                case ast.ClassDef(name=found):
                    if found == name:
                        return self._class(statement)
                    names.append(found)
                case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                    if found == name:
                        return PartSource(self.file, statement.lineno, {})
                    is_open = is_open or found == "__getattr__"
                    names.append(found)
                case ast.ImportFrom():
                    for alias in statement.names:
                        if (alias.asname or alias.name) == name:
                            return _look_up(self._target(statement), alias.name, self.folders, self.depth - 1)
                        is_open = is_open or alias.name == "*"
                        names.append(alias.asname or alias.name)
                case _:
                    if name in bound(statement):
                        return UNKNOWN
        return UNKNOWN if is_open else PartSource(self.file, wrong=f"{self.file} has no {name}", names=tuple(names))

    def _target(self, statement: ast.ImportFrom) -> str:
        """The module of a `from ... import`, relative ones too."""
        if not statement.level:
            return statement.module or ""
        parents = self.name.split(".")[: None if self.is_package else -1]
        parents = parents[: len(parents) - statement.level + 1]
        return ".".join([*parents, *filter(None, [statement.module])])

    def _class(self, node: ast.ClassDef) -> PartSource:
        decorators = {last_name(decorator) for decorator in node.decorator_list}
        fields: dict[str, FieldSource] = {}
        for base in node.bases:
            base_name = last_name(base)
            if base_name in _HARMLESS_BASES:
                continue
            inherited = self._base(base_name) if isinstance(base, ast.Name) else None
            if inherited is None:
                return UNKNOWN
            fields |= inherited
        if decorators & _ATTRS:
            fields |= own_fields(node)
        elif decorators:
            return UNKNOWN
        return PartSource(self.file, node.lineno, fields)

    def _base(self, name: str) -> Mapping[str, FieldSource] | None:
        """The fields of a class that this one inherits from; a circle of bases ends at `depth`."""
        return attrs.evolve(self, depth=self.depth - 1).part(name).fields if self.depth else None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module, also under `if` and `try`. The first that binds a name counts."""
    for statement in body:
        yield statement
        match statement:
            case ast.If():
                yield from _statements([*statement.body, *statement.orelse])
            case ast.Try():
                handlers = [inner for handler in statement.handlers for inner in handler.body]
                yield from _statements([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
