"""What users import: one version, and per package the names it says it has."""

import ast
import importlib
import re
import shutil
import subprocess
import sys

import pytest
import tomli

PACKAGES = ("ike_core", "ike_data", "ike_tasks", "ike_ckpt", "ike_launch")


def isort_order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: what ruff sorts by."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_and_names_real_things(package) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(set(module.__all__), key=isort_order)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_every_public_name(package, sources) -> None:
    (door,) = [source for source in sources if source.path.endswith(f"/src/{package}/__init__.py")]
    bound = {name for node in door.tree.body for name in names_of_ike(node) if name[0] != "_"}
    assert bound - set(importlib.import_module(package).__all__) == set()


def names_of_ike(node: ast.stmt) -> set[str]:
    """What a statement of an `__init__` gives its module, other people's names aside."""
    if isinstance(node, ast.ImportFrom):
        is_ours = node.module is not None and node.module.startswith("ike_")
        return {alias.asname or alias.name for alias in node.names if is_ours}
    if isinstance(node, ast.If):  # TYPE_CHECKING: what a lazy door shows to type checkers
        return {name for inner in node.body for name in names_of_ike(inner)}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package, root) -> None:
    assert (root / "packages" / package.replace("_", "-") / "src" / package / "py.typed").is_file()


def test_there_is_one_version_line(sources) -> None:
    lines = [
        f"{source.path}: {ast.unparse(node)}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and "__version__" in ast.unparse(node.targets[0])
    ]
    assert len(lines) == 1
    assert lines[0].startswith("packages/ike-core/src/ike_core/__about__.py: __version__ = ")


def test_all_packages_read_that_line_and_ask_for_their_own_minor_version(root) -> None:
    about = root / "packages/ike-core/src/ike_core/__about__.py"
    major, minor, _ = re.search(r'"(\d+)\.(\d+)\.(\d+)"', about.read_text()).groups()
    for folder in sorted((root / "packages").iterdir()):
        table = tomli.loads((folder / "pyproject.toml").read_text())
        assert (folder / table["tool"]["hatch"]["version"]["path"]).resolve() == about
        asks = [line for line in table["project"]["dependencies"] if line.startswith("ike-core")]
        assert asks == ([] if folder.name == "ike-core" else [f"ike-core ~= {major}.{minor}.0"])


def test_one_script_bumps_the_version_everywhere(root, tmp_path) -> None:
    for file in [*root.glob("packages/*/pyproject.toml"), root / "packages/ike-core/src/ike_core/__about__.py"]:
        copy = tmp_path / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    (tmp_path / "scripts").mkdir()
    shutil.copy(root / "scripts/bump.py", tmp_path / "scripts")
    command = [sys.executable, str(tmp_path / "scripts/bump.py")]
    bumped = subprocess.run([*command, "3.14.15"], capture_output=True, text=True, check=True)
    assert len(bumped.stdout.split()) == 5  # the version line, and four requirements
    assert '__version__ = "3.14.15"' in (tmp_path / "packages/ike-core/src/ike_core/__about__.py").read_text()
    for package in ("ike-data", "ike-tasks", "ike-ckpt", "ike-launch"):
        assert '"ike-core ~= 3.14.0"' in (tmp_path / "packages" / package / "pyproject.toml").read_text()
    refused = subprocess.run([*command, "3.14"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "'3.14' is no version of the form 1.2.3" in refused.stderr


@pytest.mark.slow
def test_five_wheels_install_from_a_folder_into_an_empty_environment(root) -> None:
    child = subprocess.run([sys.executable, "scripts/install_wheels.py"], cwd=root, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert "ike-core ike-data ike-tasks ike-ckpt ike-launch install and import at" in child.stdout
