"""A part's fields, read from its source by `ast`: nothing is imported, so nothing of anyone's runs."""

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import attrs

_ATTRS = frozenset({"frozen", "define", "mutable", "attrs", "s", "attributes"})
_FIELD = frozenset({"field", "ib", "attrib"})
_HARMLESS_BASES = frozenset({"object", "Protocol", "Generic"})
_DEPTH = 8
"""Re-exports followed before giving up: a circle of them ends too."""


@attrs.frozen
class FieldSource:
    """A field as the class says it."""

    annotation: str
    """Source text, without quotes around it; '' where there is none."""
    default: str | None
    """Source text; None: required."""


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
                    if name in _bound(statement):
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
        decorators = {_last_name(decorator) for decorator in node.decorator_list}
        fields: dict[str, FieldSource] = {}
        for base in node.bases:
            base_name = _last_name(base)
            if base_name in _HARMLESS_BASES:
                continue
            inherited = self.part(base_name).fields if isinstance(base, ast.Name) and base_name != node.name else None
            if inherited is None:
                return UNKNOWN
            fields |= inherited
        if decorators & _ATTRS:
            fields |= _own_fields(node)
        elif decorators:
            return UNKNOWN
        return PartSource(self.file, node.lineno, fields)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module, also under `if` and `try`; the last that binds a name is not looked for."""
    for statement in body:
        yield statement
        match statement:
            case ast.If():
                yield from _statements([*statement.body, *statement.orelse])
            case ast.Try():
                handlers = [inner for handler in statement.handlers for inner in handler.body]
                yield from _statements([*statement.body, *handlers, *statement.orelse, *statement.finalbody])


def _bound(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _own_fields(node: ast.ClassDef) -> dict[str, FieldSource]:
    """By the names that a table uses: `_x` is said `x`."""
    decorated = {
        decorator.value.id
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        for decorator in method.decorator_list
        if isinstance(decorator, ast.Attribute)
        and decorator.attr == "default"
        and isinstance(decorator.value, ast.Name)
    }
    fields: dict[str, FieldSource] = {}
    for statement in node.body:
        for name in _bound(statement):
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            annotation = _text(statement.annotation).strip("'\"") if isinstance(statement, ast.AnnAssign) else ""
            options = _options(statement.value)
            if annotation.startswith(("ClassVar", "typing.ClassVar")) or (options is None and not annotation):
                continue
            default = _default(statement.value, options)
            if default is None and name in decorated:
                default = "..."
            init = (options or {}).get("init")
            if not (isinstance(init, ast.Constant) and init.value is False):
                alias = (options or {}).get("alias")
                said = str(alias.value) if isinstance(alias, ast.Constant) else name.lstrip("_")
                fields[said] = FieldSource(annotation, default)
    return fields


def _options(value: ast.expr | None) -> dict[str, ast.expr] | None:
    """The keywords of `attrs.field(...)`; None where the value is a default itself, or there is none."""
    if not isinstance(value, ast.Call) or _last_name(value.func) not in _FIELD:
        return None
    options = {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg}
    return options | ({"default": value.args[0]} if value.args else {})


def _default(value: ast.expr | None, options: Mapping[str, ast.expr] | None) -> str | None:
    if options is None:
        return None if value is None else _text(value)
    if "factory" in options:
        return f"{_text(options['factory'])}()"
    return _text(options["default"]) if "default" in options else None


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Call():
            return _last_name(node.func)
        case ast.Subscript():
            return _last_name(node.value)
        case ast.Attribute():
            return node.attr
        case ast.Name():
            return node.id
    return ""


def _text(node: ast.expr) -> str:
    return ast.unparse(node)
