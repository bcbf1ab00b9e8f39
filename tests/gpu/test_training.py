"""What a GPU trains is what one process trains in float64 on the CPU, each example alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from parts import Spread, TwoTerms
from reference import Reference, train

from ike_tasks import SFT

OBJECTIVES = {"sft": SFT(), "two": TwoTerms(), "spread": Spread()}
TOLERANCE = 1e-4
"""Relative, of loss and gradient norm in float32."""


@pytest.fixture(scope="module")
def reference(llama: Path, rows: list[dict[str, Any]]) -> dict[str, Reference]:
    return {objective: train(llama, rows, objective, "sgd", 3) for objective in OBJECTIVES}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_three_steps_in_float32_are_those_in_float64(objective, engine, new_pipeline, reference, log) -> None:
    pipeline = new_pipeline(OBJECTIVES[objective], *engine, "~checkpoint")
    pipeline.run()
    right, steps = reference[objective], log(pipeline)
    assert [step["loss"] for step in steps] == pytest.approx(right.losses, rel=TOLERANCE)
    assert [step["grad_norm"] for step in steps] == pytest.approx(right.grad_norms, rel=TOLERANCE)
    for name, tensor in pipeline.parts.engine.weights():
        assert tensor.device.type == "cuda"
        change = (right.end[name] - right.start[name]).norm()
        assert (tensor.double().cpu() - right.end[name]).norm() < 1e-2 * change, name


def test_recomputed_activations_change_nothing(new_pipeline, engine, reference, log) -> None:
    pipeline = new_pipeline(SFT(), *engine, "model.activation_checkpointing=true", "~checkpoint")
    pipeline.run()
    right = reference["sft"]
    assert [step["loss"] for step in log(pipeline)] == pytest.approx(right.losses, rel=TOLERANCE)
    assert [step["grad_norm"] for step in log(pipeline)] == pytest.approx(right.grad_norms, rel=TOLERANCE)


@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bf16_learns(stage, new_pipeline, reference, log) -> None:
    """The first loss is the float64 one to bf16's 3 digits; twenty steps over the same rows halve it."""
    adam = ('optimizer.uses="ike_core.runtime:AdamW"', "optimizer.peak_lr=3e-3", "length.steps=20")
    pipeline = new_pipeline(SFT(), f"engine.zero_stage={stage}", 'engine.precision="bf16"', *adam, "~checkpoint")
    pipeline.run()
    assert all(tensor.dtype == torch.bfloat16 for _, tensor in pipeline.parts.engine.weights())
    losses = [step["loss"] for step in log(pipeline)]
    assert losses[0] == pytest.approx(reference["sft"].losses[0], rel=2e-2)
    assert losses[-1] < 0.5 * losses[0]


def test_the_same_run_twice_is_the_same_but_for_the_order_of_sums(new_pipeline, engine, log) -> None:
    runs = []
    for _ in range(2):
        pipeline = new_pipeline(SFT(), *engine, "~checkpoint")
        pipeline.run()
        runs.append([step["loss"] for step in log(pipeline)])
    assert runs[0] == pytest.approx(runs[1], rel=1e-6)
