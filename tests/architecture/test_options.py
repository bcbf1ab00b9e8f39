"""No option is dead: every key that a run file may have is read by something outside the settings."""

import ast
from typing import Any, Protocol

import attrs
import pytest

from ike_core.config.conventions import DEFAULT_USES
from ike_core.config.schema import named, section
from ike_core.config.sections import Sections
from ike_core.config.source import read_part


class Source(Protocol):
    path: str
    tree: ast.Module


def options(cls: type) -> set[tuple[str, str]]:
    """(section class, key) of all that can be reached from one."""
    found: set[tuple[str, str]] = set()
    for field in attrs.fields(cls):
        found.add((cls.__name__, field.name))
        annotation: Any = named(field.type) or field.type
        inner = section(annotation)
        if inner is not None:
            found |= options(inner)
    return found


def reads(tree: ast.AST) -> set[str]:
    """Names that are read as attributes: the `clip_norm` of `section.clip_norm`."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


def test_every_key_of_ikes_own_is_read(sources: list[Source]) -> None:
    outside = set().union(*(reads(source.tree) for source in sources if "ike_core/config/" not in source.path))
    assert {f"{cls}.{key}" for cls, key in options(Sections) if key not in outside} == set()


@pytest.mark.parametrize("uses", sorted(DEFAULT_USES.values()))
def test_every_field_of_a_default_part_is_read_by_its_module(uses: str) -> None:
    part = read_part(uses, [])
    assert not part.is_absent, "the architecture tests run where all five packages are installed"
    assert part.fields is not None
    assert part.file is not None
    assert set(part.fields) - reads(ast.parse(part.file.read_text())) == set()
