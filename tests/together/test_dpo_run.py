"""Preferences learned by a run file: from real pairs to the log, and what is said where the reference is not there."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ike_core import ConfigError, TrainingPipeline, load_config
from ike_tasks import DPO

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def layer(shared_data: Path, stories: Path, tmp_path: Path) -> Path:
    """recipes/dpo.toml on real transcripts, small enough for a test."""
    layer = tmp_path / "run.toml"
    layer.write_text(
        f"""
extends = ["{ROOT / "recipes/dpo.toml"}"]
[run]
root = "{tmp_path / "runs"}"
[model]
path = "{stories}"
[data.train]
files = ["{shared_data / "hh-rlhf"}/*.gz"]
limit = 64
max_tokens = 400
[data.train.processor]
template = false
[data.holdout]
count = 16
[data.ledger]
budget = 0.9
[engine]
uses = "ike_core.runtime:PlainTorch"
[optimizer]
peak_lr = 1e-3
[schedule]
warmup_steps = 0
[batch]
examples_per_step = 8
tokens_per_device = 1024
[length]
steps = 2
[cadence]
log = {{ steps = 1 }}
"""
    )
    return layer


def lines(root: Path) -> list[dict[str, Any]]:
    (log,) = root.glob("*/log.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_the_recipe_learns_from_log_two_on_and_evaluates_by_the_same_objective(layer: Path, tmp_path: Path) -> None:
    TrainingPipeline(config=load_config(layer, "~checkpoint")).run()
    before, first, last = lines(tmp_path / "runs")
    assert before["valid/holdout/loss"] == pytest.approx(math.log(2), abs=1e-6)  # policy and reference are the same
    assert (before["valid/holdout/margin"], before["valid/holdout/accuracy"]) == (0.0, 0.0)
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    for name in ("accuracy", "margin", "rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected"):
        assert {name, f"valid/holdout/{name}"} <= last.keys()
    assert last["rewards/chosen"] - last["rewards/rejected"] == pytest.approx(last["margin"], abs=1e-5)
    assert last["valid/holdout/margin"] != 0.0


def test_a_run_without_its_reference_is_refused_before_any_rank_starts(layer: Path) -> None:
    child = [sys.executable, "-m", "ike_core.config.check", "train", str(layer), "~frozen.reference"]
    done = subprocess.run(child, capture_output=True, text=True)
    assert done.returncode == ConfigError.exit_code
    assert "DPO needs the frozen model 'reference'" in done.stderr
    assert "write [frozen.reference]" in done.stderr
    assert "dpo.toml:" in done.stderr


def test_a_pipeline_without_its_reference_says_what_to_write(layer: Path) -> None:
    config = load_config(layer, "~frozen.reference", "~checkpoint")
    with pytest.raises(ConfigError, match=r"write \[frozen.reference\]"):
        TrainingPipeline(train_forward_step_fn=DPO(), config=config).run()


def test_a_users_own_objective_without_its_reference_is_told_what_to_write(layer: Path) -> None:
    def own(model: Any, batch: Any, context: Any) -> Any:
        return context.frozen["reference"]

    config = load_config(layer, "~frozen.reference", "~checkpoint")
    with pytest.raises(ConfigError, match=r"asks for the frozen model 'reference'; write \[frozen.reference\]"):
        TrainingPipeline(train_forward_step_fn=own, config=config).run()
