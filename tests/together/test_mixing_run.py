"""A run over named sources: what the log says of each is what was drawn of it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, nn

from ike_core import ConfigError, Example, TrainingPipeline, load_config

SOURCES: dict[str, list[int]] = {"long": [8] * 30, "short": [2] * 100}
"""Name -> tokens of each row, of which all but the first are learned."""
RUN = """
[run]
root = "runs"
[data.train.sources.long]
files = ["long.jsonl"]
[data.train.sources.short]
files = ["short.jsonl"]
[engine]
uses = "ike_core.runtime:PlainTorch"
[schedule]
shape = "constant"
[batch]
examples_per_step = 16
[length]
steps = 64
[cadence]
log = { steps = 1 }
"""


class Lin(nn.Module):
    """Logits [theta, 0] at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(vocab_size=2, pad_token_id=0, bos_token_id=None, eos_token_id=None)

    def forward(self, input_ids: Tensor) -> Tensor:
        return torch.cat([self.theta, torch.zeros_like(self.theta)]).expand(*input_ids.shape, 2)


@attrs.frozen
class Numbers:
    """{"tokens": 3, "name": "short:7"}: so many tokens, named."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        count = record["tokens"]
        yield Example.of([0] * count, [0.0] + [1.0] * (count - 1), fields={"name": record["name"]})


@attrs.define
class Seen:
    """A hook that notes which rows were learned from."""

    names: list[list[str]] = attrs.field(factory=list)

    def after_update(self, report: Any, context: Any) -> None:
        self.names.append([example.fields["name"] for example in report.examples])


def loss(model: nn.Module, samples: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    learned = samples["labels"][:, 1:] != -100
    return (model(samples["input_ids"])[:, :-1, 0] * learned).sum(), learned.sum()


@pytest.fixture
def train(tmp_path: Path) -> Any:
    """Runs with these overrides; (the names of each step's rows, the log's lines, what was said, the pipeline)."""
    (tmp_path / "run.toml").write_text(RUN)
    for name, sizes in SOURCES.items():
        rows = [{"tokens": size, "name": f"{name}:{number}"} for number, size in enumerate(sizes)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(*overrides: str) -> tuple[list[list[str]], list[dict[str, Any]], TrainingPipeline]:
        model, seen = Lin(), Seen()
        pipeline = TrainingPipeline(
            model,
            loss,
            [Numbers],
            torch.optim.SGD(model.parameters(), lr=0.1),
            config=load_config(tmp_path / "run.toml", "~checkpoint", *overrides),
            hooks={"seen": seen},
        )
        pipeline.run()
        lines = (pipeline.parts.setup.folder / "log.jsonl").read_text().splitlines()
        return seen.names, [json.loads(line) for line in lines], pipeline

    return run


def weights(by: str, long: float, short: float) -> list[str]:
    return [
        f"data.train.mix_by={by}",
        f"data.train.sources.long.weight={long}",
        f"data.train.sources.short.weight={short}",
    ]


def count(steps: list[list[str]], source: str) -> int:
    return sum(name.startswith(source) for step in steps for name in step)


def test_sources_without_weights_are_one_set(train: Any) -> None:
    """30 and 100 rows: an epoch of 9 steps sees each once."""
    steps, log, _ = train("length.epochs=1.0")
    names = [name for step in steps for name in step]
    assert len(names) == len(set(names)) == 130
    assert {key: value for key, value in log[-1].items() if key.startswith("data/")} == {
        "data/long/examples": 30, "data/long/tokens": 240, "data/long/supervised_tokens": 210.0,
        "data/short/examples": 100, "data/short/tokens": 200, "data/short/supervised_tokens": 100.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("by", "long", "short", "share"),
    [
        ("documents", 1.0, 3.0, 0.25),
        ("tokens", 1.0, 1.0, 0.2),  # 8 tokens against 2: a fifth of the rows gives half of the tokens
        ("supervised_tokens", 1.0, 1.0, 0.125),  # 7 against 1
    ],
)
def test_weights_are_shares_of_what_they_are_said_to_share_out(
    train: Any, by: str, long: float, short: float, share: float
) -> None:
    """64 steps of 16 are four blocks of 256, each with its quota within one."""
    steps, log, _ = train(*weights(by, long, short))
    assert abs(count(steps, "long") - share * 1024) <= 1
    assert log[-1]["data/long/examples"] == count(steps, "long")
    assert log[-1]["data/short/tokens"] == 2 * count(steps, "short")
    assert log[-1]["data/long/supervised_tokens"] == 7 * count(steps, "long")
    assert log[9]["data/long/examples"] + log[9]["data/short/examples"] == log[9]["examples"] == 160


def test_what_the_sources_came_to_is_said_at_the_end(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    train(*weights("documents", 1.0, 1.0))
    assert "long 50.00 % of examples, 80.00 % of tokens, 87.50 % of supervised tokens" in capsys.readouterr().out


def test_a_stage_changes_the_shares_at_its_step(train: Any) -> None:
    stage = "data.train.stages.end={from_step=32, weights={short=0.0}}"
    steps, _, _ = train(*weights("documents", 1.0, 1.0), stage)
    assert count(steps[:32], "long") == 256
    assert count(steps[32:], "long") == 512


def test_a_run_longer_than_its_sources_last_is_refused_before_a_step(train: Any) -> None:
    """30 rows three times and 100 once are 190: 12 steps of 16, not 64."""
    capped = ["data.train.sources.long.max_repeats=3", "data.train.sources.short.max_repeats=1"]
    with pytest.raises(ConfigError, match=r"64 steps of 16 .* after 190 \(long 3 x 30, short 1 x 100\): that is 12 st"):
        train(*weights("documents", 1.0, 1.0), *capped)
    steps, _, _ = train(*weights("documents", 1.0, 1.0), *capped, "length.steps=12")
    assert (count(steps, "long"), count(steps, "short")) == (90, 100)


def test_a_holdout_is_of_every_source_and_no_row_of_it_is_learned(train: Any) -> None:
    steps, log, pipeline = train(*weights("documents", 1.0, 1.0), "data.holdout.count=5")
    (held_out,) = (evaluation.dataset for evaluation in pipeline.parts.evaluations)
    names = {held_out[index].fields["name"] for index in range(len(held_out))}
    assert sorted(name.partition(":")[0] for name in names) == ["long"] * 5 + ["short"] * 5
    assert names.isdisjoint(name for step in steps for name in step)
    assert "valid/holdout/loss" in log[-1]
