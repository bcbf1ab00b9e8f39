"""The fields of an attrs class, as its body says them."""

import ast
from collections.abc import Mapping

import attrs

_FIELD = frozenset({"field", "ib", "attrib"})


@attrs.frozen
class FieldSource:
    """A field as the class says it."""

    annotation: str
    """Source text, without quotes around it; '' where there is none."""
    default: str | None
    """Source text; None: required."""


def bound(statement: ast.stmt) -> list[str]:
    """Names that an assignment gives a value."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def own_fields(node: ast.ClassDef) -> dict[str, FieldSource]:
    """By the names that a table uses: `_x` is said `x`."""
    with_method = _names_with_default_method(node)
    fields: dict[str, FieldSource] = {}
    for statement in node.body:
        for name in bound(statement):
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            annotation = ast.unparse(statement.annotation).strip("'\"") if isinstance(statement, ast.AnnAssign) else ""
            options = _options(statement.value)
            if annotation.startswith(("ClassVar", "typing.ClassVar")) or (options is None and not annotation):
                continue
            said, is_said = _said(name, options or {})
            if is_said:
                default = _default(statement.value, options)
                fields[said] = FieldSource(annotation, "..." if default is None and name in with_method else default)
    return fields


def _said(name: str, options: Mapping[str, ast.expr]) -> tuple[str, bool]:
    """What a table calls the field, and whether it may: not where `init=False`."""
    alias, init = options.get("alias"), options.get("init")
    said = str(alias.value) if isinstance(alias, ast.Constant) else name.lstrip("_")
    return said, not (isinstance(init, ast.Constant) and init.value is False)


def _names_with_default_method(node: ast.ClassDef) -> set[str]:
    """`x` of `@x.default`."""
    methods = [statement for statement in node.body if isinstance(statement, ast.FunctionDef)]
    decorators = [decorator for method in methods for decorator in method.decorator_list]
    found = [one for one in decorators if isinstance(one, ast.Attribute) and one.attr == "default"]
    return {one.value.id for one in found if isinstance(one.value, ast.Name)}


def _options(value: ast.expr | None) -> dict[str, ast.expr] | None:
    """The keywords of `attrs.field(...)`; None where the value is a default itself, or there is none."""
    if not isinstance(value, ast.Call) or last_name(value.func) not in _FIELD:
        return None
    options = {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg}
    return options | ({"default": value.args[0]} if value.args else {})


def _default(value: ast.expr | None, options: Mapping[str, ast.expr] | None) -> str | None:
    if options is None:
        return None if value is None else ast.unparse(value)
    if "factory" in options:
        return f"{ast.unparse(options['factory'])}()"
    return ast.unparse(options["default"]) if "default" in options else None


def last_name(node: ast.expr) -> str:
    """`frozen` of `attrs.frozen(kw_only=True)`, `Base` of `Base[int]`."""
    match node:
        case ast.Call():
            return last_name(node.func)
        case ast.Subscript():
            return last_name(node.value)
        case ast.Attribute():
            return node.attr
        case ast.Name():
            return node.id
    return ""
