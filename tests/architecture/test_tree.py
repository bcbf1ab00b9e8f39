"""The repository itself: small files, no trace of anyone's machine, documents whose code can be read."""

import ast
import re
import subprocess

import pytest
import tomli

MACHINE = re.compile(r"(?<![\w.])/(work|root|opt|home|tmp)/")
DECLARATIONS = ("ike_core/interfaces.py", "ike_core/config/sections.py")  # lists without logic, read as one
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def tracked(root) -> list[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("needs a git checkout")
    return [path for path in listing.stdout.splitlines() if (root / path).is_file()]


def blocks(root, language: str) -> list[tuple[str, str]]:
    """Every fenced block of a language in the documents: where it starts, and its text."""
    found = []
    for file in [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("packages/*/README.md")]:
        text = file.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block[1] == language:
                line = text.count("\n", 0, block.start()) + 1
                found.append((f"{file.relative_to(root)}:{line}", block[2]))
    return found


def test_files_of_the_packages_are_short(sources) -> None:
    lengths = {s.path: s.text.count("\n") for s in sources if not s.path.endswith(DECLARATIONS)}
    assert {path: length for path, length in lengths.items() if length > 250} == {}


def test_functions_of_the_packages_fit_a_screen(sources) -> None:
    long = [
        f"{source.path}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60
    ]
    assert long == []


def test_files_are_named_by_what_they_hold(sources) -> None:
    vague = {"utils", "util", "helpers", "common", "misc", "base", "manager", "handler", "tools"}
    assert [source.path for source in sources if source.path.rpartition("/")[2].removesuffix(".py") in vague] == []


def test_every_public_class_and_module_says_what_it_is(sources) -> None:
    silent = []
    for source in sources:
        if source.text.strip() and ast.get_docstring(source.tree) is None:
            silent.append(source.path)
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_" and ast.get_docstring(node) is None:
                silent.append(f"{source.path}:{node.lineno}: {node.name}")
    assert silent == []


def test_no_file_names_a_path_of_someone_s_machine(root, tracked) -> None:
    named = []
    for path in tracked:
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        named += [f"{path}:{n}" for n, line in enumerate(text.splitlines(), 1) if MACHINE.search(line)]
    assert named == []


def test_python_in_the_documents_parses(root) -> None:
    for where, block in blocks(root, "python"):
        ast.parse(block, where)
    assert blocks(root, "python") != []


def test_toml_in_the_documents_parses(root) -> None:
    for where, block in blocks(root, "toml"):
        try:
            tomli.loads(block)
        except tomli.TOMLDecodeError as error:
            pytest.fail(f"{where}: {error}")
    assert blocks(root, "toml") != []
