"""What is wrong with the settings ends `ike-launch train` before it has started any process."""

import subprocess
import sys
from pathlib import Path

import pytest

ENDED_BY_A_START = 99
WATCHED = f"""
import os, sys

def watch(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system"):
        os._exit({ENDED_BY_A_START})

sys.addaudithook(watch)
from ike_launch.cli import command
sys.exit(command(sys.argv[1:]))
"""
"""Ends in a way that can't be caught as soon as a process is about to be started."""

RUN = """
[model]
path = "model"
[data.train]
files = ["rows.jsonl"]
processor = { uses = "parts:Rows" }
[objective]
uses = "parts:Loss"
"""
PARTS = "import attrs\n@attrs.frozen\nclass Rows: ...\n@attrs.frozen\nclass Loss:\n    gamma: float = 2.0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "parts.py").write_text(PARTS)
    return tmp_path


def train(folder: Path, text: str, *overrides: str) -> "subprocess.CompletedProcess[str]":
    (folder / "run.toml").write_text(RUN + text)
    command = [sys.executable, "-c", WATCHED, "train", "run.toml", *overrides]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


LINE = 2 + RUN.count("\n")
"""Of the first key of what a test adds to RUN."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nlearing_rate = 1e-4", "train.learing_rate is no known key; there are: run, model, frozen, "),
        ("[batch]\nexample_per_step = 8", "batch.example_per_step is no known key; nearest: batch.examples_per_step, "),
        ("[optimizer]\npeek_lr = 1e-4", "optimizer.peek_lr is no field of ike_core.runtime:AdamW; nearest: peak_lr "),
        ("\ngama = 1", "objective.gama is no field of parts:Loss; nearest: gamma "),
    ],
)
def test_an_unknown_key_starts_nothing(folder: Path, text: str, said: str) -> None:
    """B07: the whole key, the nearest one there is, file and line."""
    ended = train(folder, text)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"ike-launch: {said}")
    assert ended.stderr.endswith(f"(run.toml:{LINE})\n")
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"1e-4"', "'1e-4' must be a number; without quotes: 1e-4"),
        ("true", "true must be a number"),
        ("nan", "nan is no finite number"),
        ("-1.0", "-1.0 must be >= 0.0"),
    ],
)
def test_what_is_no_number_starts_nothing(folder: Path, value: str, said: str) -> None:
    """B09, in a file and from the command line. (What a part's own field may hold its class says, in one child.)"""
    ended = train(folder, f"[optimizer]\npeak_lr = {value}")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"ike-launch: optimizer.peak_lr = {said} (run.toml:{LINE})\n"
    override = f"optimizer.peak_lr={value}"
    ended = train(folder, "", override)
    assert ended.returncode == 2
    assert ended.stderr == f"ike-launch: optimizer.peak_lr = {said} (override {override})\n"
    assert not (folder / "runs").exists()


@pytest.mark.usefixtures("needs_torch")
def test_a_process_is_started_where_nothing_is_wrong(folder: Path) -> None:
    """The control: the hook sees it. A number from the command line is one: 1e-4."""
    assert train(folder, "", "optimizer.peak_lr=1e-4").returncode == ENDED_BY_A_START


def test_a_dry_run_tells_the_step_and_starts_nothing(folder: Path) -> None:
    """B25: 17 examples on 2 ranks, of at most 4 at once; and 2 on 3, which can't be dealt."""
    text = "[batch]\nexamples_per_step = 17\nexamples_per_device = 4\n"
    told = train(folder, text, "--ranks", "2", "--dry-run")
    assert (told.returncode, told.stderr) == (0, "")
    assert "17 over all ranks: 8.5 a rank on average, none repeated or dropped" in told.stdout
    assert "and 4 examples on one rank, as many as a step needs" in told.stdout
    refused = train(folder, text, "--ranks", "3", "--dry-run", "batch.examples_per_step=2")
    assert refused.returncode == 2
    assert "batch.examples_per_step = 2 can't be dealt to 3 ranks" in refused.stderr
    assert not (folder / "runs").exists()
