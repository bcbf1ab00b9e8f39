"""docs/cases.md names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROW = re.compile(r"^\| (B\d+) \|.*\|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


@pytest.fixture(scope="module")
def rows(root: Path) -> dict[str, str]:
    text = (root / "docs/cases.md").read_text(encoding="utf-8")
    found = [(row[1], row[0]) for row in ROW.finditer(text)]
    assert len(found) == len(dict(found)), "a case has one row"
    return dict(found)


def names_in(file: Path) -> set[str]:
    if not file.is_file():
        return set()
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_case_names_tests_that_exist(root: Path, rows: dict[str, str]) -> None:
    missing = [
        f"{case}: tests/{file}::{name}"
        for case, row in rows.items()
        for file, name in TEST.findall(row)
        if name not in names_in(root / "tests" / file)
    ]
    assert missing == []
    assert [case for case, row in rows.items() if not TEST.search(row)] == []
