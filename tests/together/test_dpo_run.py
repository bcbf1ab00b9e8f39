"""Preferences learned by a run file: from real pairs to the log, and what is said where the reference is not there."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

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


def odd_rows(prompt: str = "Tom saw a dog.") -> list[tuple[dict[str, Any], str]]:
    """Rows as people have them, and what becomes of each: '' is learned from, else the ledger's reason."""
    said = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "It ran."}]
    more = [{"role": "user", "content": "And then?"}, {"role": "assistant", "content": "It sat."}]
    other = [said[0], {"role": "assistant", "content": "It hid."}, *more]
    elsewhere = [{"role": "user", "content": "Lily saw a cat."}, said[1]]
    return [
        ({"prompt": prompt, "chosen": "The dog was big.", "rejected": "A red ball."}, ""),
        ({"prompt": prompt, "chosen": "The dog was big.", "rejected": ""}, "empty assistant content"),
        ({"chosen": said, "rejected": elsewhere}, "no prompt in common"),
        ({"chosen": [*said, *more], "rejected": other}, ""),  # they part before the last turn
        ({"prompt": prompt, "chosen": "The dog was big and it ran.", "rejected": "The dog was big and red."}, ""),
        ({"prompt": prompt, "chosen": "The dog.", "rejected": "The dog."}, "the answers are the same"),
        ({"prompt": "Once upon a time " * 100, "chosen": "Yes.", "rejected": "No."}, "too long"),
    ]


def test_odd_pairs_are_learned_from_or_in_the_ledger(layer: Path, stories: Path, tmp_path: Path) -> None:
    rows = odd_rows()
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row, _ in rows))
    (tmp_path / "chat.jinja").write_text(
        "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    template = ["data.train.processor.template=true", f'tokenizer.chat_template="{tmp_path / "chat.jinja"}"']
    files = [f'data.train.files=["{tmp_path / "odd.jsonl"}"]', "~data.holdout", "data.train.max_tokens=300"]
    pipeline = TrainingPipeline(config=load_config(layer, *files, *template, "~checkpoint"))
    assert math.isfinite(pipeline.run())
    (ledger,) = (tmp_path / "runs").glob("*/ledger.jsonl")
    reasons = {int(entry["source"].split(":")[-1]): entry["reason"] for entry in map(json.loads, ledger.open())}
    unused = {number: reason for number, (_, reason) in enumerate(rows, 1) if reason}
    assert reasons.keys() == unused.keys()
    for number, reason in unused.items():
        assert reasons[number].startswith(reason)
    assert len(pipeline.parts.feed.dataset) == 3
    chosen, rejected = pipeline.parts.feed.dataset[2].answers
    assert pipeline.parts.feed.dataset[2].supervised > sum(chosen.weights) + sum(rejected.weights)  # what they share


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_reference_neither_learns_nor_drops(dropout: float, layer: Path, stories: Path, tmp_path: Path) -> None:
    """Log 2 at the first step where the policy drops nothing, and in evaluation always; its weights stay to the bit."""
    config = LlamaConfig.from_pretrained(stories, attention_dropout=dropout)
    model = LlamaForCausalLM.from_pretrained(stories, config=config, attn_implementation="sdpa")
    settings = ["~checkpoint", f'model.path="{stories}"', "length.steps=3"]
    pipeline = TrainingPipeline(model=model, config=load_config(layer, *settings))
    reference = pipeline.parts.frozen["reference"]
    before = {name: weight.clone() for name, weight in reference.state_dict().items()}
    pipeline.run()
    start, first, *_, last = lines(tmp_path / "runs")
    assert start["valid/holdout/loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert (first["loss"] == pytest.approx(math.log(2), abs=1e-6)) == (dropout == 0.0)
    assert last["valid/holdout/loss"] != start["valid/holdout/loss"]
    assert not reference.training
    assert all(torch.equal(weight, before[name]) for name, weight in reference.state_dict().items())
