"""A star: every package imports ike_core and itself; torch stands behind one door a package; nothing is undeclared."""

import re
import subprocess
import sys
from pathlib import Path

import tomli

PACKAGES = {"ike_core", "ike_data", "ike_tasks", "ike_ckpt", "ike_launch"}
TRAINING = {"torch", "deepspeed", "transformers"}


def top(module: str) -> str:
    return module.partition(".")[0]


def declared(root: Path, package: str) -> tuple[set[str], set[str]]:
    """Import names of what a package requires, and of what its extras add."""
    folder = root / "packages" / package.replace("_", "-")
    project = tomli.loads((folder / "pyproject.toml").read_text())["project"]
    extras = [line for extra in project.get("optional-dependencies", {}).values() for line in extra]
    return _import_names(project["dependencies"]), _import_names(extras)


def _import_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", line, maxsplit=1)[0].replace("-", "_").lower() for line in requirements}


def test_no_package_imports_a_sibling(sources) -> None:
    crossed = [
        f"{source.path}:{found.line}: imports {found.module}"
        for source in sources
        for found in source.imports()
        if top(found.module) in PACKAGES - {"ike_core", source.package}
    ]
    assert crossed == []


def test_the_runtime_is_imported_by_nothing_outside_it(sources) -> None:
    crossed = [
        f"{source.path}:{found.line}: imports {found.module}"
        for source in sources
        for found in source.imports()
        if f"{found.module}.".startswith("ike_core.runtime.") and not source.is_runtime
    ]
    assert crossed == []


def test_every_third_party_is_declared_and_extras_are_imported_late(sources, root) -> None:
    wrong = []
    for source in sources:
        required, extras = declared(root, source.package)
        allowed_late = required | extras | {source.package, "ike_core"}
        # Behind core's door, and in the agent that runs where ranks run, an extra is the point of the file.
        is_door = source.is_runtime or source.path.endswith("ike_launch/agent.py")
        allowed = allowed_late if is_door else required | {source.package, "ike_core"}
        for found in source.imports():
            name = top(found.module)
            if name in sys.stdlib_module_names or name in (allowed_late if found.is_late else allowed):
                continue
            reason = "an extra: import it late" if name in allowed_late else "not declared in pyproject.toml"
            wrong.append(f"{source.path}:{found.line}: imports {name}, {reason}")
    assert wrong == []


def test_the_light_half_of_core_never_names_torch(sources) -> None:
    crossed = [
        f"{source.path}:{found.line}: imports {found.module}"
        for source in sources
        for found in source.imports()
        if source.package == "ike_core" and not source.is_runtime and top(found.module) in TRAINING
    ]
    assert crossed == []


def test_data_never_names_torch(sources) -> None:
    assert not [s.path for s in sources if s.package == "ike_data" for i in s.imports() if top(i.module) == "torch"]


IMPORT_ALL = """
import importlib, sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "deepspeed", "transformers"}:
            raise ImportError(f"{name} is forbidden here")

sys.meta_path.insert(0, Forbid())
for module in sys.argv[1:]:
    importlib.import_module(module)
print(len(sys.argv) - 1, "imported")
"""


def test_light_modules_import_where_torch_cannot_be(sources) -> None:
    modules = sorted(
        source.path.partition("/src/")[2].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for source in sources
        if source.package in {"ike_core", "ike_data", "ike_launch"}
        and not source.is_runtime
        and not source.path.endswith(("ike_launch/agent.py", "__main__.py"))
    )
    child = subprocess.run([sys.executable, "-c", IMPORT_ALL, *modules], capture_output=True, text=True)
    assert (child.returncode, child.stdout, child.stderr) == (0, f"{len(modules)} imported\n", "")
