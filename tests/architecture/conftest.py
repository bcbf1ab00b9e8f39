"""The source of the five packages, read once."""

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]


@attrs.frozen
class Import:
    """One module that a file imports."""

    module: str
    line: int
    is_late: bool
    """Inside a function, or for type checkers alone: not paid by who imports the file."""


@attrs.frozen
class Source:
    """One file of a package."""

    package: str
    """'ike_core'"""
    path: str
    """From the root of the repository."""
    text: str
    tree: ast.Module

    @property
    def is_runtime(self) -> bool:
        """Whether the file lies in the one folder of ike_core that may import torch."""
        return "ike_core/runtime/" in self.path

    def imports(self) -> list[Import]:
        late = {id(node) for scope in ast.walk(self.tree) if _is_late(scope) for node in ast.walk(scope)}
        return [
            Import(module, node.lineno, id(node) in late)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for module in _modules(node)
        ]


def _is_late(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:  # `from ike_core import runtime` names a module as well as `import ike_core.runtime`
        assert node.module is not None, "relative imports are refused by ruff"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def sources() -> list[Source]:
    found = []
    for file in sorted(ROOT.glob("packages/*/src/*/**/*.py")):
        path, text = str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
        found.append(Source(path.split("/")[3], path, text, ast.parse(text, path)))
    assert {source.package for source in found} == {"ike_core", "ike_data", "ike_tasks", "ike_ckpt", "ike_launch"}
    return found
