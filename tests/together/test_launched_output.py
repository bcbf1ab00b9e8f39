"""What a launched training run says, and how it ends when one rank fails in the middle."""

import json
import os
import subprocess
from pathlib import Path

RUN = """
[run]
name = "told"
[model]
path = "{stories}"
[data.train]
files = ["rows.jsonl"]
[data.train.processor]
uses = "ike_data:InstructionProcessor"
[objective]
uses = "failing:Failing"
[batch]
examples_per_step = 4
[length]
steps = 20
[cadence]
log = {{ steps = 2 }}
"""
FAILING = """
import attrs
from ike_core import Mean
from ike_tasks import target_logprobs

@attrs.frozen
class Failing:
    step: int = -1
    "Where rank 1 fails, having finished so many."

    def __call__(self, model, batch, context):
        if context.training and context.rank == 1 and context.step == self.step:
            raise ArithmeticError("as it was told")
        return Mean(-target_logprobs(model, batch).sum(), batch.weights["tokens"])
"""


def launch(folder: Path, stories: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """stdout and stderr into one file, as in `> log 2>&1`, without a terminal."""
    (folder / "run.toml").write_text(RUN.format(stories=stories))
    (folder / "failing.py").write_text(FAILING)
    rows = [{"prompt": f"Once there were {n}", "response": " cats. They slept. The end."} for n in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["ike-launch", "train", "run.toml", *settings, "--ranks", "2"]
    environment = {name: value for name, value in os.environ.items() if name != "TERM"}
    with (folder / "said").open("w") as said:
        return subprocess.run(command, cwd=folder, env=environment, stdout=said, stderr=said, timeout=240)


def test_a_redirected_run_is_a_line_a_logged_step(stories: Path, tmp_path: Path) -> None:
    """B29."""
    assert launch(tmp_path, stories).returncode == 0, (tmp_path / "said").read_text()
    said = (tmp_path / "said").read_bytes()
    assert b"\r" not in said
    lines = said.decode().splitlines()
    logged = [line for line in lines if line.startswith("step ") and "loss" in line]
    assert [line.split()[1] for line in logged] == [f"{step}/20" for step in range(2, 21, 2)]
    assert len(lines) <= 20 + 10


def test_the_rank_that_failed_is_told_with_its_step(stories: Path, tmp_path: Path) -> None:
    assert launch(tmp_path, stories, "objective.step=6").returncode == 1
    said = (tmp_path / "said").read_text()
    assert said.splitlines()[-1] == "ArithmeticError: as it was told"
    assert said.count("ArithmeticError: as it was told") == 1
    assert "rank 1 of 2" in said
    assert "at step 6" in said
    (run,) = (tmp_path / "runs").glob("told-*")
    failure = json.loads((run / "failure.json").read_text())
    assert (failure["rank"], failure["step"], failure["kind"]) == (1, 6, "ArithmeticError")
    assert "step 6/20" in (run / "ranks" / "0.log").read_text()
    assert "as it was told" in (run / "ranks" / "1.err").read_text()
