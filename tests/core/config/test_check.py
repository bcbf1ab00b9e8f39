"""The checking child: imports and structures the parts that a command needs, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]

LAB = """
import attrs
from ike_core.interfaces import Tokenizer
@attrs.frozen
class Net:
    width: int = 4
@attrs.frozen
class Words:
    path: str = ""
@attrs.frozen
class Chat:
    tokenizer: Tokenizer
    system: str = ""
@attrs.frozen
class Focal:
    gamma: float = 2.0
@attrs.frozen
class Engine: ...
@attrs.frozen
class Optimizer: ...
"""
RUN = """
[model]
uses = "check_lab:Net"
[tokenizer]
uses = "check_lab:Words"
path = "words"
[data.train]
files = ["a.jsonl"]
processor = { uses = "check_lab:Chat" }
[objective]
uses = "check_lab:Focal"
[engine]
uses = "check_lab:Engine"
[optimizer]
uses = "check_lab:Optimizer"
"""


def check(*arguments: str) -> tuple[int, str]:
    """Exit code and standard error; torch must not be needed."""
    done = subprocess.run(
        [sys.executable, "-m", "ike_core.config.check", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.returncode, done.stderr


def test_parts_that_fit_are_no_news(write: Write) -> None:
    write("check_lab.py", LAB)
    write("run.toml", RUN)
    write("a.jsonl", "")
    assert check("train", "run.toml", "~checkpoint") == (0, "")


def test_a_file_that_is_not_there_is_told_before_anything_that_takes_long(write: Write) -> None:
    pytest.importorskip("ike_data")
    write("check_lab.py", LAB)
    write("run.toml", RUN)
    write("a.jsonl", "")
    code, said = check("train", "run.toml", "~checkpoint", 'data.valid.far.files=["b.jsonl"]')
    assert code == 3
    assert "b.jsonl does not exist" in said


def test_a_schedule_that_does_not_fit_the_runs_length_is_told_before_data_are_read(write: Write) -> None:
    write("check_lab.py", LAB)
    write("run.toml", RUN)
    write("a.jsonl", "")
    code, said = check("train", "run.toml", "~checkpoint", "schedule.warmup_steps=9", "length.steps=8")
    assert code == 2
    assert "schedule.warmup_steps = 9 is longer than the run of 8 updates" in said
    assert check("train", "run.toml", "~checkpoint", "schedule.warmup_steps=8", "length.steps=8") == (0, "")


def test_everything_wrong_with_any_part_is_said_once_with_exit_code_2(write: Write) -> None:
    write("check_lab.py", LAB)
    write("run.toml", RUN)
    write("a.jsonl", "")
    code, said = check(
        "train", "run.toml", "~checkpoint", "objective.gama=1", "model.width=wide", "data.train.processor.system=5"
    )
    assert code == 2
    assert said.splitlines() == [
        "2 settings can't be used:",
        "  model.width = 'wide' must be an integer (override model.width=wide)",
        "  objective.gama is no field of check_lab:Focal; nearest: gamma (override objective.gama=1)",
    ]


@pytest.mark.parametrize(
    ("command", "missing"),
    [("train", ["model", "data.train", "data.train.processor", "objective"]), ("infer", ["model", "inference"])],
)
def test_what_a_command_needs_and_does_not_have_is_named(write: Write, command: str, missing: list[str]) -> None:
    write("check_lab.py", LAB)
    write("bare.toml", '[engine]\nuses = "check_lab:Engine"\n[optimizer]\nuses = "check_lab:Optimizer"')
    code, said = check(command, "bare.toml", "~checkpoint")
    assert code == 2
    assert [line.split()[0] for line in said.splitlines()[1:]] == missing
    assert all(" is missing: say " in line for line in said.splitlines()[1:])


def test_inference_needs_no_training_parts(write: Write) -> None:
    write("check_lab.py", LAB)
    write("run.toml", RUN + '[inference]\nuses = "check_lab:Focal"\nfiles = ["q.jsonl"]\noutput = "a.jsonl"')
    write("q.jsonl", "")
    assert check("infer", "run.toml", "~checkpoint", "objective.uses=nowhere:X") == (0, "")
