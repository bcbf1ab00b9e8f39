"""A reference as a frozen copy, as the policy with its adapter off, and precomputed: the same losses in runs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ike_core import ConfigError, TrainingError, TrainingPipeline, load_config
from ike_tasks import DPO, KTO, CoupledDPO

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/squared.toml"
SGD = ['optimizer.uses="ike_core.runtime:SGD"', "optimizer.peak_lr=0.1", "schedule.warmup_steps=0"]
PRECOMPUTED = "frozen.reference.precomputed=true"


def lines(root: Path) -> list[dict[str, Any]]:
    (log,) = root.glob("*/log.jsonl")
    return [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]


def losses(stories: Path, root: Path, *settings: str, objective: Any) -> list[list[float]]:
    """Loss, margin and norm of every step, and of the validation at the end."""
    config = load_config(
        EXAMPLE, "~checkpoint", f'model.path="{stories}"', f'run.root="{root}"', f'data.cache="{root}-cache"',
        'engine.uses="ike_core.runtime:PlainTorch"', 'engine.precision="fp64"', "length.steps=3",
        f'data.valid.same.files=["{ROOT / "examples/pairs.jsonl"}"]', *SGD, *settings,
    )  # fmt: skip
    TrainingPipeline(train_forward_step_fn=objective, config=config).run()
    steps = lines(root)
    return [[line["loss"], line["margin"], line["grad_norm"]] for line in steps] + [[steps[-1]["valid/same/loss"]]]


@pytest.mark.parametrize("objective", [DPO(beta=0.5), CoupledDPO(beta=0.5)], ids=["DPO", "CoupledDPO"])
@pytest.mark.parametrize("adapter", [[], ["model.lora.rank=4"]], ids=["full", "lora"])
def test_all_kinds_give_the_same_losses(objective: Any, adapter: list[str], stories: Path, tmp_path: Path) -> None:
    """With LoRA the default is the adapter off; a dtype of its own makes it a copy."""
    kinds = {"default": [], "copy": ['frozen.reference.dtype="float64"'], "precomputed": [PRECOMPUTED]}
    found = {
        kind: losses(stories, tmp_path / kind, *adapter, *settings, objective=objective)
        for kind, settings in kinds.items()
    }
    for kind in ("copy", "precomputed"):
        for one, other in zip(found["default"], found[kind], strict=True):
            assert other == pytest.approx(one, rel=1e-6, abs=1e-7), kind  # Llama's norms are float32 in any precision
    assert found["default"][2][1] > 0


def test_two_ranks_under_zero_3_share_the_work_and_see_the_same(stories: Path, tmp_path: Path) -> None:
    wanted = losses(stories, tmp_path / "alone", "batch.examples_per_step=6", objective=DPO(beta=0.5))
    settings = [
        f'model.path="{stories}"', f'run.root="{tmp_path / "ranks"}"', f'data.cache="{tmp_path / "other"}"',
        'objective.uses="ike_tasks:DPO"', "objective.beta=0.5", "engine.zero_stage=3", "length.steps=3",
        "batch.examples_per_step=6", PRECOMPUTED, *SGD, "~checkpoint",
    ]  # fmt: skip
    command = ["ike-launch", "train", str(EXAMPLE), *settings, "--ranks", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "frozen.reference: log-probabilities of 12 answers computed" in done.stdout
    (kept,) = (tmp_path / "other" / "frozen").iterdir()
    assert {file.name for file in kept.iterdir()} == {
        "index.safetensors",
        "part-00000.safetensors",
        "part-00001.safetensors",
    }
    found = [[line["loss"], line["margin"], line["grad_norm"]] for line in lines(tmp_path / "ranks")]
    for one, other in zip(wanted, found, strict=False):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)


def test_an_objective_that_makes_rows_of_its_own_is_told_that_it_needs_the_model(stories: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="as KTO does, needs the model"):
        losses(stories, tmp_path / "kto", PRECOMPUTED, objective=KTO())


def test_a_collate_of_ones_own_has_no_place_for_it(stories: Path, tmp_path: Path) -> None:
    config = load_config(
        EXAMPLE, "~checkpoint", f'model.path="{stories}"', f'run.root="{tmp_path}"', PRECOMPUTED,
        'engine.uses="ike_core.runtime:PlainTorch"',
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"frozen.reference.precomputed goes with ike's own collates"):
        TrainingPipeline(train_forward_step_fn=DPO(), config=config, collate_fn=lambda rows, vocabulary: {}).run()
