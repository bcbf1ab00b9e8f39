"""The examples that train, for four updates: objectives and functions under two ranks, other parts on one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BY_SETTINGS = {  # peak learning rates for a model of 260,032 parameters; ranks
    "focal": (2, "model.path={stories}", "optimizer.peak_lr=2e-3"),
    "squared": (1, "model.path={stories}", "optimizer.peak_lr=3e-6"),
    "own_rows": (1, "model.path={stories}", "optimizer.peak_lr=2e-3"),
    "own_model": (1, "tokenizer.path={stories}", "optimizer.peak_lr=2e-2"),
    "own_optimizer": (1, "model.path={stories}", "optimizer.peak_lr=3e-4"),
    "hook": (1, "model.path={stories}", "optimizer.peak_lr=2e-3"),
}
BY_SCRIPT = {"train": (2, "train.toml"), "alternating": (1, "small.toml"), "flow": (2, "train.toml")}


def launch(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`ike-launch ...` in an empty folder, so that nothing is found by chance."""
    command = ["ike-launch", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)


def the_run(folder: Path) -> Path:
    (run,) = (entry for entry in (folder / "runs").iterdir() if not entry.name.startswith("."))
    return run


def logged(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", BY_SETTINGS)
def test_a_run_file_trains(name: str, stories: Path, tmp_path: Path, ranks: Ranks) -> None:
    """The launcher's two steps: the parts are checked by one child, and then each rank is a worker."""
    size, *settings = BY_SETTINGS[name]
    layers = [EXAMPLES / f"{name}.toml", *[str(setting).format(stories=stories) for setting in settings]]
    ranks(1, "-m", "ike_core.config.check", "train", *layers, cwd=tmp_path, deadline_seconds=120).check()
    ranks(size, "-m", "ike_core.worker", "train", *layers, cwd=tmp_path, deadline_seconds=240).check()
    run = the_run(tmp_path)
    losses = [line["loss"] for line in logged(run) if "loss" in line]
    assert len(losses) == 4  # a step is half of the rows, and there are two epochs
    assert losses[-1] < losses[0]
    assert (run / "step-000004" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", BY_SCRIPT)
def test_a_script_trains_and_saves_a_model(name: str, stories: Path, tmp_path: Path, ranks: Ranks) -> None:
    from transformers import AutoModelForCausalLM

    size, settings = BY_SCRIPT[name]
    script, layer = EXAMPLES / f"{name}.py", EXAMPLES / settings
    where = f"user.base={stories}" if settings == "train.toml" else f"model.path={stories}"
    ranks(size, script, layer, where, cwd=tmp_path, deadline_seconds=240).check()
    (saved,) = the_run(tmp_path).glob("step-*/model")
    model = AutoModelForCausalLM.from_pretrained(saved)
    assert sum(parameter.numel() for parameter in model.parameters()) == 260_032


def test_the_hook_that_stops_on_a_spike_stops_every_rank(stories: Path, tmp_path: Path) -> None:
    settings = (
        f"model.path={stories}",
        "hooks.spike.times=0.001",
    )  # the second norm is never a thousandth of the first
    done = launch("train", EXAMPLES / "hook.toml", *settings, "--ranks", "2", cwd=tmp_path)
    assert done.returncode == 6
    assert "step 2: gradient norm" in done.stderr
    assert "rows.jsonl:" in done.stderr
    assert not list(the_run(tmp_path).glob("step-*"))


def test_a_misspelt_field_of_ones_own_objective_is_named_before_any_rank_starts(stories: Path, tmp_path: Path) -> None:
    done = launch("train", EXAMPLES / "focal.toml", f"model.path={stories}", "objective.gama=1.0", cwd=tmp_path)
    assert done.returncode == 2
    assert "objective.gama" in done.stderr
    assert "gamma" in done.stderr
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("focal-*"))
