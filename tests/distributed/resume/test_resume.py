"""The same run again: cut short anywhere, on the same layout to the bit, on another to rounding."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from resumed_parts import MeanWeights
from safetensors.torch import load_file

from ike_core import TrainingPipeline, load_config

HERE = Path(__file__).parent
DEADLINE_SECONDS = 900
EXACT = ("step", "loss", "grad_norm", "learning_rate", "epoch", "examples", "tokens", "supervised_tokens")

pytestmark = pytest.mark.timeout(2 * DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, stories: Path, ranks: Ranks) -> Path:
    """Two ranks have run all there is to run."""
    folder = tmp_path_factory.mktemp("resume")
    draw = torch.Generator().manual_seed(5)
    rows = [torch.randint(3, 500, (length,), generator=draw).tolist() for length in (9, 30, 14, 22, 7, 18, 12, 25)]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"tokens": row}) + "\n" for row in rows))
    (folder / "run.toml").write_text(
        """
[data.train]
files = ["rows.jsonl"]
processor = { uses = "resumed_parts:TokenRows" }
[optimizer]
peak_lr = 1e-2
weight_decay = 0.1
[optimizer.groups.embedding]
match = "embed"
lr_scale = 0.5
[schedule]
shape = "cosine"
warmup_steps = 2
[batch]
examples_per_step = 3
tokens_per_device = 64
[length]
epochs = 3.0
[cadence]
log = { steps = 1 }
save = { steps = 2 }
[checkpoint]
uses = "ike_ckpt:SafetensorsStore"
export = "never"
"""
    )
    ranks(2, HERE / "resumed_rank.py", folder, stories, deadline_seconds=DEADLINE_SECONDS).check()
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def log_of(folder: Path, name: str) -> list[dict[str, Any]]:
    (run,) = (folder / "runs").glob(f"{name}-2*")
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


CASES = ["sft-0", "sft-1", "sft-2", "sft-3", "bf16-1", "bf16-3", "coupled-2"]


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_was_cut_short_three_times_is_the_same_run(folder: Path, found: Any, name: str) -> None:
    assert len(set(found[name])) == 1  # all four lives in one folder
    whole, again = log_of(folder, f"whole-{name}"), log_of(folder, f"cut-{name}")
    assert [line["step"] for line in whole if "loss" in line] == list(range(1, 10))
    for before, after in zip(whole, again, strict=True):
        assert {key: before.get(key) for key in EXACT} == {key: after.get(key) for key in EXACT}
    mine, theirs = load_file(folder / f"whole-{name}.safetensors"), load_file(folder / f"cut-{name}.safetensors")
    assert all(torch.equal(theirs[key], tensor) for key, tensor in mine.items())


def test_lines_of_steps_that_were_made_again_are_kept_apart(folder: Path, found: Any) -> None:
    """Cut in steps 2, 5 and 6, saved after 2 and 4: made again were 1 (nothing was saved then) and 5."""
    run = folder / "runs" / found["sft-1"][0]
    steps = [json.loads(line)["step"] for line in (run / "log.superseded.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == [1, 5]


@pytest.mark.parametrize("name", ["moved"])
def test_another_stage_takes_it_up_to_rounding(folder: Path, name: str) -> None:
    """3 -> 0 -> 2 -> 1; a float32 sum in another order differs by 1e-7 of it."""
    whole, again = log_of(folder, "whole-sft-1"), log_of(folder, name)
    for before, after in zip(whole, again, strict=True):
        assert (before["step"], before.get("examples")) == (after["step"], after.get("examples"))
        assert after.get("loss", 0.0) == pytest.approx(before.get("loss", 0.0), rel=1e-5)


def test_one_process_without_deepspeed_takes_up_what_two_ranks_of_zero_3_left(folder: Path, stories: Path) -> None:
    config = load_config(
        folder / "run.toml", f'model.path="{stories}"', 'run.name="left"', f'run.root="{folder / "runs"}"',
        'engine.uses="ike_core.runtime:PlainTorch"', 'objective.uses="ike_tasks:SFT"',
        f'checkpoint.resume="{next((folder / "runs").glob("left-2*"))}"',
    )  # fmt: skip
    hook = MeanWeights()
    TrainingPipeline(config=config, hooks={"mean": hook}).run()
    assert hook.seen == 9
    whole, again = log_of(folder, "whole-sft-1"), log_of(folder, "left")
    for before, after in zip(whole, again, strict=True):
        assert (before["step"], before.get("examples")) == (after["step"], after.get("examples"))
        assert after.get("loss", 0.0) == pytest.approx(before.get("loss", 0.0), rel=1e-5)
