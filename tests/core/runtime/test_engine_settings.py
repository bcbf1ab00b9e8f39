"""Settings of the engines that don't go together are refused before any rank starts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ike_core.errors import ConfigError
from ike_core.runtime.deepspeed_config import KNOWN, OWNED, REMOVED, deepspeed_config, refuse
from ike_core.runtime.deepspeed_engine import DeepSpeed
from ike_core.runtime.torch_engine import PlainTorch


@pytest.mark.parametrize(
    ("part", "precision", "message"),
    [
        (DeepSpeed(), "fp64", "PlainTorch"),
        (DeepSpeed(zero_stage=0), "bf16", "zero_stage >= 1"),
        (PlainTorch(), "bf16", "float32 masters"),
        (DeepSpeed(raw={"gradient_cliping": 1.0}), "fp32", "did you mean gradient_clipping"),
        (DeepSpeed(raw={"train_batch_size": 8}), "fp32", "set batch.examples_per_step"),
        (DeepSpeed(raw={"elasticity": {}}), "fp32", "was removed from DeepSpeed"),
        (DeepSpeed(raw={"zero_optimization": {"stage": 2}}), "fp32", "set engine.zero_stage"),
    ],
)
def test_what_does_not_go_together_is_refused(part: Any, precision: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        part.check(precision=precision)


@pytest.mark.parametrize(("part", "precision"), [(DeepSpeed(zero_stage=1), "bf16"), (PlainTorch(), "fp64")])
def test_what_goes_together_passes(part: Any, precision: str) -> None:
    part.check(precision=precision)


def test_raw_is_handed_on_beside_what_ike_writes() -> None:
    raw = {"wall_clock_breakdown": True, "zero_optimization": {"reduce_bucket_size": 7}}
    made = deepspeed_config(zero_stage=2, precision="fp32", clip_norm=0.5, raw=raw)
    assert made["wall_clock_breakdown"]
    assert made["zero_optimization"] == {"reduce_bucket_size": 7, "stage": 2}
    assert made["gradient_clipping"] == 0.5
    assert made["gradient_accumulation_steps"] == 1


def test_the_names_that_deepspeed_knows_are_said_once() -> None:
    refuse(dict.fromkeys(set(KNOWN) - {"zero_optimization"}, True))
    assert not set(KNOWN) & set(OWNED)
    assert not set(KNOWN) & set(REMOVED)


def test_the_checking_child_says_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[engine.raw]\ngradient_cliping = 1.0\n")
    done = subprocess.run(
        [sys.executable, "-m", "ike_core.config.check", "train", str(tmp_path / "run.toml")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "engine.raw.gradient_cliping is no setting of DeepSpeed's; did you mean gradient_clipping?" in done.stderr
