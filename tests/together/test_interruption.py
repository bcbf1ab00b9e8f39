"""A launched run that is told to stop: it ends at once, and its last words are what there is of it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launch.conftest import wait_for

RUN = """
[run]
name = "stopped"
[model]
path = "{stories}"
[data.train]
files = ["rows.jsonl"]
[data.train.processor]
uses = "ike_data:InstructionProcessor"
[objective]
uses = "slow:Slow"
[batch]
examples_per_step = 4
[length]
steps = 2000
[cadence]
log = {{ steps = 1 }}
"""
SLOW = """
import time
import attrs
from ike_core import Mean
from ike_tasks import target_logprobs

@attrs.frozen
class Slow:
    def __call__(self, model, batch, context):
        time.sleep(0.2)
        return Mean(-target_logprobs(model, batch).sum(), batch.weights["tokens"])
"""
Started = subprocess.Popen[str]


@pytest.fixture
def started(stories: Path, tmp_path: Path) -> Iterator[list[Started]]:
    """Launches; what a test leaves is killed, by its group."""
    (tmp_path / "run.toml").write_text(RUN.format(stories=stories))
    (tmp_path / "slow.py").write_text(SLOW)
    rows = [{"prompt": f"Once there were {n}", "response": " cats. They slept. The end."} for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    started: list[Started] = []
    yield started
    for each in started:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
            each.communicate()


def start(started: list[Started], folder: Path, *settings: str) -> Started:
    command = ["ike-launch", "train", "run.toml", *settings, "--ranks", "2"]
    with (folder / "said").open("w") as said:
        started.append(
            subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, text=True, start_new_session=True)
        )
    return started[-1]


@pytest.mark.parametrize(
    ("signum", "save", "last_words"),
    [
        (signal.SIGINT, "", "interrupted by SIGINT at step {step} of 2000; nothing was saved yet"),
        pytest.param(
            signal.SIGTERM,
            "3",
            "interrupted by SIGTERM at step {step} of 2000; the last saved step is {run}/step-000003",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_its_last_words_say_what_there_is(
    started: list[Started], tmp_path: Path, signum: signal.Signals, save: str, last_words: str
) -> None:
    launcher = start(started, tmp_path, *([f"cadence.save={{steps={save}}}"] if save else []))
    wait_for(lambda: "step 4/2000" in (tmp_path / "said").read_text(), 120)
    began = time.monotonic()
    os.killpg(launcher.pid, signum)
    assert launcher.wait(20) == 128 + signum
    assert time.monotonic() - began < 5
    said = (tmp_path / "said").read_text()
    assert "Traceback" not in said
    *_, stopped, head, folder = said.splitlines()
    step = int(head.split(" at step ")[1].split()[0])
    (run,) = (tmp_path / "runs").glob("stopped-*")
    assert stopped == f"ike-launch: {signum.name}: the ranks are told to stop; once more kills them"
    assert step >= 4
    assert head == "ike-launch: " + last_words.format(step=step, run=run)
    assert folder == f"the run's folder: {run}"
