"""Preference objectives in runs: in float64 no cut of a step changes a loss, a metric or a weight."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ike_core import TrainingPipeline, load_config
from ike_core.cutting import Cut
from ike_tasks import BCO, CPO, DPO, KTO, ORPO, CoupledDPO, SimPO

ROOT = Path(__file__).resolve().parents[2]
OBJECTIVES = {
    "DPO": lambda: DPO(beta=0.5, loss={"sigmoid": 1.0, "sft": 0.1}),
    "LD-DPO": lambda: DPO(beta=0.5, ld_alpha=0.3),
    "aot": lambda: CoupledDPO(beta=0.5, loss="aot"),
    "bco_pair": lambda: CoupledDPO(beta=0.5, loss={"bco_pair": 1.0, "aot_unpaired": 0.5}),
    "KTO": lambda: KTO(beta=0.5, undesirable_weight=1.2),
    "BCO": lambda: BCO(beta=0.5),
    "ORPO": ORPO,
    "SimPO": SimPO,
    "CPO": CPO,
}


def in_pieces(sizes: Any, ranks: int, ceiling: Any, rows: Any) -> Cut:
    """Three micro-batches of unequal size, and a fourth of filler alone, backwards."""
    places = list(range(len(sizes)))[::-1]
    return [[places[:1], places[1:3], places[3:], []]]


@pytest.fixture
def run(stories: Path, tmp_path: Path) -> Callable[..., Any]:
    """name of an objective, settings -> its log, and its last weights."""

    def run(name: str, *settings: str, cut: Any = None) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
        root = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        config = load_config(
            ROOT / "examples/squared.toml", "~checkpoint", f'model.path="{stories}"', f'run.root="{root}"',
            'engine.uses="ike_core.runtime:PlainTorch"', 'engine.precision="fp64"',
            'optimizer.uses="ike_core.runtime:SGD"', "optimizer.peak_lr=0.01", "schedule.warmup_steps=0",
            "batch.examples_per_step=6", "length.steps=3", *settings,
        )  # fmt: skip
        pipeline = TrainingPipeline(train_forward_step_fn=OBJECTIVES[name](), config=config, cut=cut)
        pipeline.run()
        (log,) = root.glob("*/log.jsonl")
        lines = [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
        return lines, {name: tensor.clone() for name, tensor in pipeline.parts.engine.weights()}

    return run


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_in_pieces_is_the_step_whole(name: str, run: Any) -> None:
    (whole, whole_weights), (pieces, pieces_weights) = run(name), run(name, 'batch.packing="off"', cut=in_pieces)
    for one, other in zip(whole, pieces, strict=True):  # Llama's norms are float32 whatever the precision
        own = {key for key in one if "/" in key} | {"loss", "grad_norm", "examples"}
        assert {key: other[key] for key in own} == pytest.approx({key: one[key] for key in own}, rel=1e-5, abs=1e-7)
    assert whole[0]["examples"] == 6
    assert whole[-1]["loss"] != whole[0]["loss"]
    for key, weight in whole_weights.items():
        assert torch.allclose(weight, pieces_weights[key], rtol=0, atol=1e-7), key
