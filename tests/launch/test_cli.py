"""The command: instant where it starts nothing, and without torch."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import attrs
import pytest
from tests.launch.conftest import Launch

WITHOUT_TORCH = """
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "deepspeed", "transformers", "rich"}:
            raise ImportError(f"{name} is forbidden here")

sys.meta_path.insert(0, Forbid())
from ike_launch.cli import command
sys.exit(command(sys.argv[1:]))
"""

TORCH_IS_ABSENT = """
import sys
from importlib.machinery import PathFinder

found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: None if name.partition(".")[0] == "torch" else found(name, *where)
from ike_launch.cli import command
sys.exit(command(sys.argv[1:]))
"""

RUN = """
[run]
name = "focal-{objective.gamma}"
[model]
path = "model"
freeze = ["embed"]
[frozen.reference]
uses = "ike_core.runtime:PretrainedModel"
path = "model"
[data.train]
files = ["*.jsonl"]
max_tokens = 256
[data.train.processor]
uses = "parts:Rows"
[data.valid.helpful]
files = ["rows.jsonl"]
[data.ledger]
budget = 0.02
[objective]
uses = "parts:Focal"
gamma = 2.0
[engine]
zero_stage = 2
clip_norm = 0.5
[optimizer]
peak_lr = 3e-4
[optimizer.groups.head]
match = "lm_head"
lr_scale = 10.0
[schedule]
shape = "linear"
warmup_steps = 3
[batch]
examples_per_step = 17
tokens_per_device = 2048
[length]
steps = 20
[cadence]
log = { steps = 1 }
save = { epochs = 0.5 }
[checkpoint]
keep_last = 3
[inference]
files = ["rows.jsonl"]
output = "answers.jsonl"
[user]
anything = "goes"
"""

PARTS = """
import torch  # as a part of anyone's would: read, never imported
import attrs

@attrs.frozen
class Focal:
    gamma: float = 2.0

@attrs.frozen
class Rows:
    column: str = "text"
"""


@attrs.frozen
class Child:
    """A command in a child that can't import torch."""

    code: int
    stdout: str
    stderr: str
    cpu_seconds: float


def without_torch(folder: Path, *arguments: str) -> Child:
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", WITHOUT_TORCH, *arguments], cwd=folder, stdout=out, stderr=err, text=True
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seen = (folder / "out").read_text(), (folder / "err").read_text()
    return Child(process.returncode, *seen, usage.ru_utime + usage.ru_stime)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "model").mkdir()
    for name in ("rows.jsonl", "more.jsonl"):
        (tmp_path / name).touch()
    return tmp_path


def fastest(folder: Path, arguments: Sequence[str]) -> float:
    """Of three: other processes only ever add."""
    return min(without_torch(folder, *arguments).cpu_seconds for _ in range(3))


def test_help_is_instant(folder: Path) -> None:
    assert fastest(folder, ["--help"]) < 0.1
    told = without_torch(folder, "--help")
    assert told.code == 0
    for name in ("train", "infer", "run", "config"):
        assert f"ike-launch {name}" in told.stdout


@pytest.mark.parametrize("name", ["train", "infer", "run", "config"])
def test_every_command_has_help(folder: Path, name: str) -> None:
    told = without_torch(folder, name, "--help")
    assert (told.code, told.stderr) == (0, "")
    assert told.stdout.startswith(f"usage: ike-launch {name}")


def test_settings_are_shown_fast(folder: Path) -> None:
    assert fastest(folder, ["config", "run.toml"]) < 0.25
    shown = without_torch(folder, "config", "run.toml", "objective.gamma=0.5")
    assert shown.code == 0, shown.stderr
    assert "gamma = 0.5" in shown.stdout
    assert 'name = "focal-0.5"' in shown.stdout


def test_a_setting_is_explained(folder: Path) -> None:
    told = without_torch(
        folder, "config", "run.toml", "batch.examples_per_step=8", "--explain", "batch.examples_per_step"
    )
    assert told.code == 0, told.stderr
    line = next(n for n, text in enumerate(RUN.splitlines(), start=1) if text.startswith("examples_per_step"))
    for part in ("batch.examples_per_step = 8", "override", "identity", "17", f"run.toml:{line}"):
        assert part in told.stdout


def test_a_dry_run_needs_no_torch(folder: Path) -> None:
    told = without_torch(folder, "train", "run.toml", "--ranks", "2", "--dry-run")
    assert told.code == 0, told.stderr
    assert not (folder / "runs").exists()


def test_what_is_wrong_is_said_before_anything_starts(folder: Path) -> None:
    told = without_torch(folder, "train", "run.toml", "objective.gama=1.0", "batch.tokens_per_devise=1")
    assert told.code == 2
    assert told.stdout == ""
    assert "batch.tokens_per_devise" in told.stderr
    assert "tokens_per_device" in told.stderr.replace("tokens_per_devise", "")
    assert not (folder / "runs").exists()


def test_who_lacks_torch_is_told_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WITHOUT_TORCH", TORCH_IS_ABSENT)
    for command in (["train", "run.toml"], ["run", "--", "python", "parts.py"]):
        told = without_torch(folder, *command)
        assert told.code == 5
        assert 'pip install "ike-launch[local]"' in told.stderr
        assert "Traceback" not in told.stderr


def test_a_misspelt_command_has_a_nearest(launch: Launch) -> None:
    ended = launch("trian")
    assert ended.code == 2
    assert ended.last_line == "ike-launch: no command 'trian'; did you mean train?"


def test_a_command_without_dashes_before_it_is_told_how(launch: Launch) -> None:
    ended = launch("run", "--ranks", "2")
    assert ended.code == 2
    assert "ike-launch run -- python my_script.py" in ended.stderr


@pytest.mark.parametrize("ranks", ["0", "-1", "two", "1.5"])
def test_ranks_are_a_number_or_auto(launch: Launch, ranks: str) -> None:
    ended = launch("run", f"--ranks={ranks}", "--", "true")
    assert ended.code == 2
    assert f"{ranks!r} is neither auto nor a number of at least 1" in ended.stderr


def test_there_is_one_version(launch: Launch) -> None:
    assert launch("--version").stdout == f"ike-launch {version('ike-launch')}\n"


def test_a_program_that_is_not_there_is_named(launch: Launch) -> None:
    ended = launch("run", "--", "no-such-program")
    assert ended.code == 5
    assert "no-such-program" in ended.last_line
