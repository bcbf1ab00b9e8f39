"""The environments: pip everywhere, what is pinned lies in what the packages promise, CI runs what the README says."""

import re

import pytest
import tomli
from packaging.requirements import Requirement


@pytest.fixture(scope="session")
def environments(root) -> dict[str, dict]:
    return tomli.loads((root / "hatch.toml").read_text())["envs"]


def test_no_environment_takes_a_package_from_anywhere_but_pip(environments) -> None:
    # hatch's own default for some environments is uv, which does not read pip's settings.
    for name, environment in environments.items():
        inherited = environments[environment.get("template", name)]
        assert {**inherited, **environment}["installer"] == "pip", name
        assert {**inherited, **environment}["skip-install"] is True, name


def test_pins_lie_within_the_ranges_that_users_install(environments, root) -> None:
    pins: dict[str, set[str]] = {}
    for environment in environments.values():
        for line in [*environment.get("dependencies", []), *environment.get("extra-dependencies", [])]:
            name, _, version = line.partition("==")
            pins.setdefault(name, set()).add(version)
    assert {name: versions for name, versions in pins.items() if len(versions) > 1} == {}
    checked = set()
    for file in root.glob("packages/*/pyproject.toml"):
        project = tomli.loads(file.read_text())["project"]
        extras = project.get("optional-dependencies", {}).values()
        for line in [*project["dependencies"], *(line for extra in extras for line in extra)]:
            requirement = Requirement(line)
            if requirement.name in pins:
                (version,) = pins[requirement.name]
                assert requirement.specifier.contains(version), f"{file}: {line}, tested with {version}"
                checked.add(requirement.name)
    assert checked >= {"torch", "transformers", "deepspeed", "safetensors"}


def test_packages_pin_nothing_themselves(root) -> None:
    pinned = [
        f"{file.parent.name}: {line}"
        for file in root.glob("packages/*/pyproject.toml")
        for line in re.findall(r'"[^"]+==[^"]+"', file.read_text())
    ]
    assert pinned == []


def test_nothing_but_the_tests_forces_the_cpu(root) -> None:
    text = (root / "hatch.toml").read_text() + (root / ".ci/run").read_text()
    assert "CUDA_VISIBLE_DEVICES" not in text
    assert "DS_ACCELERATOR" not in text


def test_each_package_has_an_environment_where_it_is_alone(environments) -> None:
    for package in ("core", "data", "tasks", "ckpt", "launch"):
        environment = environments[f"alone-{package}"]
        members = {m if isinstance(m, str) else m["path"] for m in environment["workspace"]["members"]}
        assert members == {"packages/ike-core", f"packages/ike-{package}"}
        assert f"tests/{package}" in environment["scripts"]["test"][-1]


def test_ci_runs_the_readme_s_test_command_and_the_checks(environments, root) -> None:
    ci, readme = (root / ".ci/run").read_text(), (root / "README.md").read_text()
    assert "hatch run test" in readme
    assert ci.index("\nhatch run check") < ci.index("\nhatch run test")  # the tests close
    for name in re.findall(r"hatch run ([\w:-]+)", readme):
        environment, _, script = name.rpartition(":")
        assert script in environments[environment or "default"]["scripts"], f"README: hatch run {name}"
