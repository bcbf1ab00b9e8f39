"""Each package in an ordinary script: the examples that use one of them alone."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(*command: str | Path, cwd: Path) -> list[str]:
    """Its lines; fails with what it said."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_ike_data_tells_which_tokens_are_learned(stories: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "Once upon a time", "response": " there was a dog."}\n{"prompt": "Tom"}\n')
    good, bad = run(sys.executable, EXAMPLES / "data_alone.py", stories, rows, cwd=tmp_path)
    assert good.startswith("rows.jsonl:1: ")
    assert "there was a dog." in good
    assert "Once" not in good.partition("learned:")[2]
    assert "rows.jsonl:2: " in bad
    assert "response" in bad


def test_ike_data_fills_a_loop_of_anyones_with_batches_of_one_shape(stories: Path, tmp_path: Path) -> None:
    lines = run(sys.executable, EXAMPLES / "static_batches.py", stories, cwd=tmp_path)
    assert len(lines) > 1
    assert all(line.startswith(f"batch {number}: (2, 256, 256), ") for number, line in enumerate(lines))


def test_ike_tasks_trains_in_a_plain_torch_loop(stories: Path, tmp_path: Path) -> None:
    lines = run(sys.executable, EXAMPLES / "tasks_alone.py", stories, cwd=tmp_path)
    losses = [float(line.split()[3]) for line in lines]
    assert len(losses) == 5
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("name", ["preferences_alone", "preferences_trainer"])
def test_preferences_are_learned_in_a_plain_torch_loop_and_in_transformers_trainer(
    name: str, stories: Path, tmp_path: Path
) -> None:
    lines = run(sys.executable, EXAMPLES / f"{name}.py", stories, cwd=tmp_path)
    losses = [float(line.split()[3]) for line in lines if line.startswith("step ")]
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3)  # policy and reference are the same
    assert len(losses) == 5
    assert losses[-1] < 0.1


def test_ike_ckpt_saves_from_a_plain_torch_loop(tmp_path: Path) -> None:
    lines = run(sys.executable, EXAMPLES / "ckpt_alone.py", "kept", cwd=tmp_path)
    assert lines[-1] == "read back, equal: True"
    (folder,) = (tmp_path / "kept").iterdir()
    assert {step.name for step in folder.glob("step-*")} == {"step-000010", "step-000020"}


def test_ike_launch_starts_a_script_that_knows_nothing_of_ike(tmp_path: Path) -> None:
    script = EXAMPLES / "launch_alone.py"
    lines = run("ike-launch", "run", "--ranks", "2", "--", sys.executable, script, cwd=tmp_path)
    assert len(lines) == 2
    assert all(line.endswith("counted from 1, is 3") for line in lines)  # 1 + 2
