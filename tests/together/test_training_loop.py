"""The loop on a model of one number, where every loss and gradient can be worked out by hand (case fixture FIX-LIN).

theta = 0, two classes, logits [theta, 0]: a token's loss is ln 2, and its slope in theta is -1/2 for label 0 and +1/2
for label 1.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, nn

from ike_core import ConfigError, DataError, Example, Mean, StepOutput, TrainingError, TrainingPipeline, load_config
from ike_core.config import Config
from ike_core.cutting import Cut
from ike_core.interfaces import Stateful

LN2 = math.log(2)


class Lin(nn.Module):
    """Logits [theta, 0] at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.config = SimpleNamespace(vocab_size=2, pad_token_id=0, bos_token_id=None, eos_token_id=None)

    def forward(self, input_ids: Tensor) -> Tensor:
        logits = torch.cat([self.theta, torch.zeros_like(self.theta)])
        return logits.expand(*input_ids.shape, 2)


@attrs.frozen
class Rows:
    """{"labels": [1, 0]}: a first token that has no predecessor, then these, all learned."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        labels = record["labels"]
        yield Example.of([0, *labels], [0.0] + [1.0] * len(labels), fields={"scale": record.get("scale", 1.0)})


def token_losses(model: nn.Module, samples: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The loss of every token that has a predecessor, and which of them are learned."""
    logits, labels = model(samples["input_ids"])[:, :-1], samples["labels"][:, 1:]
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-100)
    return losses, labels.flatten() != -100


def summed(model: nn.Module, samples: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    losses, learned = token_losses(model, samples)
    return losses.sum(), learned.sum()


def bare_mean(model: nn.Module, samples: Mapping[str, Tensor]) -> Tensor:
    losses, learned = token_losses(model, samples)
    return losses.sum() / learned.sum()


def cut_as(*micro_batches: Sequence[int]) -> Any:
    def cut(sizes: Sequence[int], ranks: int, ceiling: Any, rows: Any) -> Cut:
        return [[[p for p in micro if p < len(sizes)] for micro in micro_batches]]

    return cut


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Trains Lin on rows; returns the model, the log's lines, and the pipeline."""

    def train(
        rows: Sequence[Mapping[str, Any]], *overrides: str, function: Any = summed, lr: float = 1.0, **options: Any
    ) -> tuple[Lin, list[dict[str, Any]], TrainingPipeline]:
        model = options.pop("model", None) or Lin()
        pipeline = TrainingPipeline(
            model=model,
            train_forward_step_fn=function,
            data_processor_classes=[Rows],
            optimizer=torch.optim.SGD(model.parameters(), lr=lr),
            config=settings(tmp_path, rows, *overrides),
            **options,
        )
        pipeline.run()
        log = (pipeline.parts.setup.folder / "log.jsonl").read_text().splitlines()
        return model, [json.loads(line) for line in log], pipeline

    return train


def settings(folder: Path, rows: Sequence[Mapping[str, Any]], *overrides: str) -> Config:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.toml").write_text(
        f"""
[run]
root = "runs"
[data.train]
files = ["rows.jsonl"]
[engine]
uses = "ike_core.runtime:PlainTorch"
precision = "fp64"
clip_norm = 0.0
[schedule]
shape = "constant"
[batch]
examples_per_step = {len(rows)}
[length]
steps = 1
[cadence]
log = {{ steps = 1 }}
"""
    )
    return load_config(folder / "run.toml", "~checkpoint", *overrides)


A, B = {"labels": [1]}, {"labels": [0, 0, 0]}


@pytest.mark.parametrize("cut", [cut_as([0, 1]), cut_as([0], [1]), cut_as([1], [], [0])])
@pytest.mark.parametrize("function", [summed, bare_mean])
def test_cutting_a_step_divides_once_by_all_its_tokens(run: Any, cut: Any, function: Any) -> None:
    """Case B01: (0.5 - 3 * 0.5) / 4 = -0.25, not the mean of means (0) and not undivided (-1)."""
    model, log, _ = run([A, B], cut=cut, function=function)
    assert model.theta.item() == pytest.approx(0.25, abs=1e-12)
    assert log[-1]["grad_norm"] == pytest.approx(0.25, abs=1e-12)
    assert log[-1]["loss"] == pytest.approx(LN2, abs=1e-12)


def test_a_step_with_fewer_examples_is_divided_by_its_own_tokens(run: Any) -> None:
    """Case B11: 5 rows in steps of 4; the last step has 1, and its gradient is whole: -(1 - sigma(0.5))."""
    _, log, _ = run(
        [{"labels": [0]}] * 5, "batch.examples_per_step=4", "length.steps=2", cut=cut_as([0], [1], [2], [3])
    )
    slopes = [line["grad_norm"] for line in log]
    assert slopes == pytest.approx([0.5, 1 - 1 / (1 + math.exp(-0.5))], abs=1e-12)
    assert slopes[1] == pytest.approx(0.377541, abs=1e-6)
    assert [line["examples"] for line in log] == [4, 5]


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_the_learning_rate_follows_updates_not_micro_batches(run: Any, micro_batches: int) -> None:
    """Case B13."""
    cut = cut_as(*[[p for p in range(4) if p % micro_batches == m] for m in range(micro_batches)])
    shape = ['schedule.shape="linear"', "schedule.warmup_steps=2", "length.steps=10"]
    _, log, _ = run([B] * 4, *shape, cut=cut)
    rates = [line["learning_rate"] for line in log]
    assert rates == pytest.approx([0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_an_evaluation_counts_every_token_once(run: Any, tmp_path: Path, at_once: int) -> None:
    """Case B15: token losses 4 | 1 1 1 | 2 2 by row: (4 + 3 + 4) / 6, however they are batched."""
    (tmp_path / "valid.jsonl").write_text(
        "".join(json.dumps({"labels": [0] * n, "scale": s}) + "\n" for n, s in [(1, 4), (3, 1), (2, 2)])
    )

    def scaled(model: nn.Module, batch: Any, context: Any) -> Mean:
        losses, learned = token_losses(model, batch.tensors)
        scale = torch.tensor([row.fields["scale"] for row in context.examples] or [0.0]).repeat_interleave(
            batch["labels"].shape[1] - 1
        )
        return Mean((losses * scale * learned).sum() / LN2, batch.weights["tokens"])

    files = f'data.valid.v.files=["{tmp_path / "valid.jsonl"}"]'
    collate = 'batch.collate.uses="ike_core.runtime:Padded"'
    _, log, _ = run([B], files, collate, f"batch.examples_per_device={at_once}", function=scaled, lr=0.0)
    assert [line["valid/v/loss"] for line in log] == pytest.approx([11 / 6, 11 / 6])
    assert pytest.approx(1.833333, abs=1e-6) == 11 / 6
    assert [line["step"] for line in log] == [0, 1]


def test_a_bare_mean_over_something_else_is_told_at_the_start(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A mean over rows is taken for one over tokens: cut in two the two rows weigh 1 and 3."""

    def mean_of_rows(model: nn.Module, samples: Mapping[str, Tensor]) -> Tensor:
        losses, learned = token_losses(model, samples)
        rows = losses.view(samples["labels"].shape[0], -1).sum(1)
        return (rows.square() / learned.view(rows.shape[0], -1).sum(1)).mean()

    run([A, B], function=mean_of_rows)
    said = capsys.readouterr().out
    # whole: (ln2^2 / 1 + 9 ln2^2 / 3) / 2 = 2 ln2^2; cut: (3 * 3 ln2^2 + 1 * ln2^2) / 4 = 2.5 ln2^2
    assert "1.250 times" in said
    assert "return (total, weight)" in said


def test_a_weight_that_is_not_the_batchs_own_is_refused(run: Any) -> None:
    def wrong(model: nn.Module, samples: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        return summed(model, samples)[0], 7

    with pytest.raises(ConfigError, match="weight 7, and the micro-batch weighs 4"):
        run([A, B], function=wrong)


@attrs.frozen
class Overflows:
    """A loss that is not finite from some update on, on the rows of one scale."""

    step: int

    def __call__(self, model: nn.Module, batch: Any, context: Any) -> Mean:
        total = token_losses(model, batch.tensors)[0].sum()
        bad = context.step >= self.step and any(row.fields["scale"] == 2 for row in context.examples)
        return Mean(total * math.inf if bad else total, batch.weights["tokens"])


PADDED = 'batch.collate.uses="ike_core.runtime:Padded"'


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_row(run: Any) -> None:
    model = Lin()
    with pytest.raises(TrainingError, match=r"step 2: .*rows\.jsonl:2") as raised:
        run([A, B | {"scale": 2}], PADDED, "length.steps=5", function=Overflows(1), model=model)
    assert "rows.jsonl:1" not in str(raised.value)
    assert model.theta.item() == pytest.approx(0.25)  # as after step 1


def test_a_loss_that_is_never_finite_is_no_matter_of_cuts(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TrainingError, match=r"step 1: .*rows\.jsonl:2"):
        run([A, B | {"scale": 2}], PADDED, function=Overflows(0))
    assert "cut in two" not in capsys.readouterr().out


def test_steps_that_are_not_finite_are_skipped_within_the_budget(run: Any) -> None:
    skip = ['engine.on_nonfinite="skip"', "engine.skip_budget=2"]
    with pytest.raises(TrainingError, match="skip_budget = 2"):
        run([A, B | {"scale": 2}], PADDED, "length.steps=5", *skip, function=Overflows(1))
    model, log, pipeline = run([A, B | {"scale": 2}], PADDED, "length.steps=3", *skip, function=Overflows(1))
    assert model.theta.item() == pytest.approx(0.25)
    assert pipeline.progress.skipped == 2
    assert log[-1]["loss"] is None


@attrs.define
class Remembers:
    """A hook that outlives a step: a running mean of the gradient norm. Also says when it was called."""

    mean: float = 0.0
    calls: list[str] = attrs.field(factory=list)

    def before_update(self, engine: Any, context: Any) -> None:
        self.calls.append(f"before {context.step}")

    def after_update(self, report: Any, context: Any) -> None:
        self.mean += (float(report.update.grad_norm) - self.mean) / report.step
        self.calls.append(f"after {report.step}")

    def state(self) -> Mapping[str, Any]:
        return {"mean": self.mean}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.mean = state["mean"]


def test_a_hook_is_called_around_every_update_and_its_state_can_be_carried_over(run: Any) -> None:
    hook = Remembers()
    _, log, _ = run([A, B], "length.steps=2", hooks={"remembers": hook})
    assert hook.calls == ["before 0", "after 1", "before 1", "after 2"]
    assert hook.mean == pytest.approx(sum(line["grad_norm"] for line in log) / 2)
    assert isinstance(hook, Stateful)
    other = Remembers()
    other.restore(json.loads(json.dumps(hook.state())))
    assert other.mean == hook.mean


def test_a_step_can_be_done_otherwise(tmp_path: Path) -> None:
    """An overridden train_step: two losses take turns."""
    asked = []

    def named(name: str) -> Any:
        def objective(model: nn.Module, batch: Any, context: Any) -> Mean:
            if context.training:
                asked.append(name)
            return Mean(token_losses(model, batch.tensors)[0].sum(), batch.weights["tokens"])

        return objective

    class Alternating(TrainingPipeline):
        def train_step(self, step: Any) -> Any:
            return self.update(step, self.accumulate(step, [named("even"), named("odd")][step.step % 2]))

    model = Lin()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    config = settings(tmp_path, [A, B], PADDED, "length.steps=4")
    Alternating(model, named("other"), [Rows], optimizer, config=config).run()
    assert asked == ["even", "odd", "even", "odd"]


def test_the_users_collate_is_never_given_an_empty_list(run: Any) -> None:
    """Filler is a stand-in's row, whose outputs count nowhere."""
    seen = []

    def collate(examples: Sequence[Example], vocabulary: Any) -> Mapping[str, Tensor]:
        seen.append(len(examples))
        width = max(map(len, examples))
        rows = [list(example.trunk.tokens) + [0] * (width - len(example)) for example in examples]
        labels = [[-100, *list(example.trunk.tokens)[1:]] + [-100] * (width - len(example)) for example in examples]
        return {"input_ids": torch.tensor(rows), "labels": torch.tensor(labels)}

    model, log, _ = run([A, B], collate_fn=collate, cut=cut_as([0], [], [1]))
    assert model.theta.item() == pytest.approx(0.25)
    assert log[-1]["supervised_tokens"] == 4
    assert min(seen) == 1


def test_an_error_in_the_prefetch_thread_is_raised_where_the_step_would_have_been(run: Any) -> None:
    def collate(examples: Sequence[Example], vocabulary: Any) -> Mapping[str, Tensor]:
        raise ZeroDivisionError("in the thread")

    with pytest.raises(ZeroDivisionError, match="in the thread"):
        run([A, B], collate_fn=collate)


def test_a_schedule_part_of_the_users_own_sets_the_rate(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_schedule.py").write_text(
        "import attrs\n@attrs.frozen\nclass Halving:\n    by: float = 0.5\n"
        "    def __call__(self, step, steps):\n        return self.by ** step\n"
    )
    monkeypatch.chdir(tmp_path)
    _, log, _ = run([A, B], 'schedule.uses="my_schedule:Halving"', "schedule.by=0.25", "length.steps=3")
    assert [line["learning_rate"] for line in log] == [1.0, 0.25, 0.0625]
    copied = list(tmp_path.glob("runs/*/code/my_schedule.py"))
    assert len(copied) == 1  # the run folder keeps the user's module


@attrs.frozen
class Squared:
    """A StepObjective: (sum over all examples of the step of theta's loss)^2 / E, which no example has alone."""

    def widen(self, examples: Sequence[Any]) -> Sequence[Any]:
        return [*examples, *examples]

    def scores(self, model: nn.Module, batch: Any, context: Any) -> Tensor:
        losses, _ = token_losses(model, batch.tensors)
        rows = int(batch.weights["examples"])
        return losses.view(batch["labels"].shape[0], -1).sum(1)[:rows].unsqueeze(1)

    def couple(self, scores_EK: Tensor, examples: Sequence[Any], context: Any) -> StepOutput:
        return StepOutput(Mean(scores_EK.sum().square(), float(len(examples)), per="examples"))


@pytest.mark.parametrize("cut", [cut_as([0, 1, 2, 3]), cut_as([3], [], [0, 1], [2])])
def test_a_loss_that_couples_the_step_is_exact_under_every_cut(run: Any, cut: Any) -> None:
    """Scores ln2 and 3 ln2, both twice: (8 ln2)^2 / 4; slope 2 * 8 ln2 / 4 * 2 * (1/2 - 3/2) = -8 ln2."""
    model, log, _ = run([A, B], PADDED, cut=cut, function=Squared(), lr=0.1)
    assert log[-1]["loss"] == pytest.approx((8 * LN2) ** 2 / 4)
    assert model.theta.item() == pytest.approx(0.8 * LN2)


def test_a_last_loss_is_returned_whatever_the_cadence(tmp_path: Path) -> None:
    config = settings(tmp_path, [A, B], "cadence.log={steps=100}", "length.steps=2")
    model = Lin()
    loss = TrainingPipeline(model, summed, [Rows], torch.optim.SGD(model.parameters(), lr=0.0), config=config).run()
    assert loss == pytest.approx(LN2)


def test_a_pipeline_without_a_checkpoint_part_has_a_name_and_saves_nothing(run: Any, tmp_path: Path) -> None:
    *_, pipeline = run([A, B], "run.name=alone")
    assert pipeline.file_id.startswith("alone-")
    assert pipeline.save_checkpoint() is None
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [pipeline.file_id]
    assert not list((tmp_path / "runs" / pipeline.file_id).glob("step-*"))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda model: model, "takes 1 required arguments"),
        ("no function", "can't be called"),
        (lambda model, samples: None, "returned None; a step function returns the loss"),
        (lambda model, samples: {"loss": 1.0}, "returned a dict; a step function returns the loss"),
        (lambda model, samples: (1.0, 2.0, 3.0), "returned a tuple; a step function returns the loss"),
    ],
)
def test_what_is_no_step_function_is_refused(run: Any, function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run([A], function=function)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": 3}, "model= is a int; give a torch module"),
        ({"model": lambda: None}, "the callable given as model= returned None"),
        ({"optimizer": torch.optim.SGD}, "optimizer= is the class SGD; give a torch optimizer"),
        ({"optimizer": lambda model: None}, "the callable given as optimizer= returned None"),
        ({"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters())}, "2 of the 2 tensors of optimizer= are not the"),
        ({"collate_fn": lambda examples, vocabulary: None}, "returned None; a collate returns a mapping of tensors"),
        (
            {"data_processor_classes": {"trian": Rows()}},
            "a processor for 'trian', and the data sets are train; nearest",
        ),
    ],
)
def test_what_fits_no_door_is_refused_by_the_doors_name(tmp_path: Path, given: Any, message: str) -> None:
    doors: dict[str, Any] = {
        "model": Lin(),
        "data_processor_classes": {"train": Rows()},
        "train_forward_step_fn": summed,
    } | given
    with pytest.raises(ConfigError, match=message):
        TrainingPipeline(config=settings(tmp_path, [A]), **doors).run()


def test_a_token_that_the_model_does_not_know_is_refused_with_its_row(run: Any) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the train data hold token 2, and the model has 2 embeddings"):
        run([A, {"labels": [1, 2]}])


def test_an_evaluation_step_fn_stands_in_for_the_training_loss(run: Any) -> None:
    def counted(model: nn.Module, samples: Mapping[str, Tensor]) -> Mean:
        return Mean(torch.tensor(6.0), 2.0)

    _, log, _ = run([A] * 4, "data.holdout.count=1", "batch.examples_per_step=3", evaluation_step_fn=counted)
    assert [line["valid/holdout/loss"] for line in log] == [3.0, 3.0]
    assert log[-1]["loss"] == pytest.approx(LN2)


def test_a_table_of_evaluate_may_be_an_objective_on_other_data(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the tokens of label 0 cost ln 2 each, twice: the objective says so, at its own cadence and at both ends."""
    (tmp_path / "doubling.py").write_text(
        "import attrs\nfrom ike_core import Mean\n@attrs.frozen\nclass Doubling:\n"
        "    def __call__(self, model, batch, context):\n"
        "        assert not context.training\n"
        "        rows = batch.weights['examples']\n"
        "        return Mean(model(batch['input_ids']).logsumexp(-1)[:, 0].sum() * 2, rows, per='examples')\n"
    )
    (tmp_path / "other.jsonl").write_text(json.dumps({"labels": [0, 0]}) + "\n")
    monkeypatch.chdir(tmp_path)
    table = f'evaluate.other={{uses="doubling:Doubling", files=["{tmp_path / "other.jsonl"}"], cadence={{steps=2}}}}'
    _, log, _ = run([A], table, "length.steps=5", lr=0.0)
    found = {line["step"]: line["evaluate/other/loss"] for line in log if "evaluate/other/loss" in line}
    assert found == pytest.approx({0: 2 * LN2, 2: 2 * LN2, 4: 2 * LN2, 5: 2 * LN2})


def test_a_processor_may_be_an_instance_or_a_class_by_dataset(tmp_path: Path) -> None:
    model = Lin()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for given in ({"train": Rows()}, {"train": Rows}, [Rows()], (Rows,)):
        config = settings(tmp_path, [A, B])
        assert TrainingPipeline(model, summed, given, optimizer, config=config).run() == pytest.approx(LN2)
    with pytest.raises(ConfigError, match="sequence of one"):
        TrainingPipeline(model, summed, [Rows, Rows], optimizer, config=settings(tmp_path, [A])).run()


def test_a_warm_up_longer_than_the_run_is_refused_before_the_first_step(run: Any) -> None:
    model = Lin()
    with pytest.raises(ConfigError, match="warmup_steps = 20 is longer than the run of 3 updates"):
        run([A], "length.steps=3", "schedule.warmup_steps=20", model=model)
    assert model.theta.item() == 0.0


def test_a_pipeline_runs_once(run: Any) -> None:
    _, _, pipeline = run([A, B])
    with pytest.raises(TrainingError, match="this pipeline has run; build another one for another run"):
        pipeline.run()


def test_a_step_of_ones_own_has_to_report(tmp_path: Path) -> None:
    class Mine(TrainingPipeline):
        def train_step(self, step: Any) -> Any:
            super().train_step(step)

    model = Lin()
    pipeline = Mine(
        model=model,
        train_forward_step_fn=summed,
        data_processor_classes=[Rows],
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        config=settings(tmp_path, [A, B]),
    )
    with pytest.raises(TrainingError, match=r"Mine\.train_step returned a NoneType"):
        pipeline.run()
