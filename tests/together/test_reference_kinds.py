"""A reference as a frozen copy, as the policy with its adapter off, and precomputed: the same losses in runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

from ike_core import ConfigError, TrainingError, TrainingPipeline, load_config
from ike_core.interfaces import Stateful
from ike_tasks import DPO, KTO, CoupledDPO, MovingReference

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


def test_two_ranks_under_zero_3_share_the_work_and_see_the_same(stories: Path, tmp_path: Path, ranks: Ranks) -> None:
    wanted = losses(stories, tmp_path / "alone", "batch.examples_per_step=6", objective=DPO(beta=0.5))
    settings = [
        f'model.path="{stories}"', f'run.root="{tmp_path / "ranks"}"', f'data.cache="{tmp_path / "other"}"',
        'objective.uses="ike_tasks:DPO"', "objective.beta=0.5", "engine.zero_stage=3", "length.steps=3",
        "batch.examples_per_step=6", PRECOMPUTED, *SGD, "~checkpoint",
    ]  # fmt: skip
    command = ("-m", "ike_core.worker", "train", EXAMPLE, *settings)
    done = ranks(2, *command, deadline_seconds=300, cwd=tmp_path).check()
    assert "frozen.reference: log-probabilities of 12 answers computed" in done.stdout[0]
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


def stepped(stories: Path, root: Path, objective: Any, *settings: str) -> TrainingPipeline:
    config = load_config(
        EXAMPLE, "~checkpoint", f'model.path="{stories}"', f'run.root="{root}"', "batch.examples_per_step=6",
        'engine.uses="ike_core.runtime:PlainTorch"', "length.steps=3", *SGD, *settings,
    )  # fmt: skip
    return TrainingPipeline(train_forward_step_fn=objective, config=config)


class Follows:
    """Notes the sums of the policy's and the reference's first tensor as each step will meet them."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self.engine: Any = None

    def before_training(self, engine: Any, context: Any) -> None:
        self.engine = engine
        self.after_update(None, context)

    def after_update(self, report: Any, context: Any) -> None:
        (_, policy), *_ = self.engine.weights()
        (reference, *_) = context.frozen["reference"].parameters()
        self.seen.append((float(policy.double().sum()), float(reference.double().sum())))


def test_a_moving_reference_follows_the_policy_every_so_many_updates(stories: Path, tmp_path: Path) -> None:
    moving = ['hooks.moving.uses="ike_tasks:MovingReference"', "hooks.moving.share=0.25", "hooks.moving.every_steps=2"]
    pipeline = stepped(stories, tmp_path / "moving", DPO(beta=0.5), *moving)
    pipeline.hooks = {"watch": (watch := Follows())}
    pipeline.run()
    (start, first), (_, still), (policy, moved), (_, last) = watch.seen
    assert start == first == still
    assert moved == pytest.approx(0.25 * policy + 0.75 * start, rel=1e-6)
    assert last == moved
    assert abs(policy - start) > 1e-3


def test_a_moving_reference_goes_on_from_where_it_was(stories: Path, tmp_path: Path) -> None:
    """What it keeps is put into the copy before the first step: its loss is not log 2."""
    hook = MovingReference(share=1.0, every_steps=2)
    first = stepped(stories, tmp_path / "first", DPO(beta=0.5))
    first.hooks = {"moving": hook}
    first.run()
    assert isinstance(hook, Stateful)
    another = MovingReference(share=1.0, every_steps=2)
    another.restore({name: weight.clone() for name, weight in hook.state().items()})
    second = stepped(stories, tmp_path / "second", DPO(beta=0.5))
    second.hooks = {"moving": another}
    second.run()
    assert lines(tmp_path / "first")[0]["margin"] == pytest.approx(0.0, abs=1e-6)
    assert abs(lines(tmp_path / "second")[0]["margin"]) > 1e-3


@pytest.mark.parametrize("kind", [PRECOMPUTED, "model.lora.rank=4"])
def test_what_is_no_copy_can_not_move(kind: str, stories: Path, tmp_path: Path) -> None:
    pipeline = stepped(stories, tmp_path / "run", DPO(), kind, 'hooks.moving.uses="ike_tasks:MovingReference"')
    with pytest.raises(ConfigError, match=r"frozen\.reference can't move"):
        pipeline.run()
