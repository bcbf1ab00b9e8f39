"""Rows of the user's own in a run: by the settings, and as an object in Python; in worker processes too."""

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

RUN = """
[run]
root = "runs"
[data]
cache = "cache"
workers = 2
[engine]
uses = "ike_core.runtime:PlainTorch"
[batch]
examples_per_step = 3
[length]
steps = 1
"""


@attrs.frozen
class Rows:
    """Row i says label i % 2."""

    count: int = 3

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        return {"label": range(self.count)[index] % 2}


@attrs.frozen
class Labels:
    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        yield Example.of([0, record["label"]], [0.0, 1.0])


class Lin(nn.Module):
    """Logits [theta, 0] at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(vocab_size=2, pad_token_id=0, bos_token_id=None, eos_token_id=None)

    def forward(self, input_ids: Tensor) -> Tensor:
        logits = torch.cat([self.theta, torch.zeros_like(self.theta)])
        return logits.expand(*input_ids.shape, 2)


def summed(model: nn.Module, samples: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    logits, labels = model(samples["input_ids"])[:, :-1], samples["labels"][:, 1:]
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
    return losses, (labels != -100).sum()


def trained(folder: Path, *settings: str, **options: Any) -> tuple[float, list[dict[str, Any]]]:
    """Theta after one step of rate 1, and the log."""
    (folder / "run.toml").write_text(RUN)
    model = Lin()
    pipeline = TrainingPipeline(
        model=model,
        train_forward_step_fn=summed,
        data_processor_classes=[Labels],
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        config=load_config(folder / "run.toml", "~checkpoint", "schedule.shape=constant", *settings),
        **options,
    )
    pipeline.run()
    log = (pipeline.parts.setup.folder / "log.jsonl").read_text().splitlines()
    return model.theta.item(), [json.loads(line) for line in log]


THREE = pytest.approx(1 / 6)
"""Labels 0, 1, 0: slopes -1/2, 1/2, -1/2 over three tokens."""


def test_rows_by_the_settings(tmp_path: Path) -> None:
    uses = f"data.train.source={{uses='{__name__}:Rows', count=3}}"
    assert trained(tmp_path, uses)[0] == THREE


def test_named_sources_by_the_settings(tmp_path: Path) -> None:
    (tmp_path / "ones.jsonl").write_text('{"label": 1}\n')
    named = (
        f"data.train.sources.own.source={{uses='{__name__}:Rows', count=2}}",
        f"data.train.sources.files.files=['{tmp_path}/ones.jsonl']",
    )
    assert trained(tmp_path, *named)[0] == pytest.approx(-1 / 6)  # 0, 1, and 1 of the file


def test_rows_as_objects(tmp_path: Path) -> None:
    theta, log = trained(tmp_path, "data.valid.own.limit=1", sources={"train": Rows(), "own": Rows(5)})
    assert theta == THREE
    assert log[-1]["valid/own/loss"] == pytest.approx(-torch.sigmoid(torch.tensor(1 / 6)).log().item())  # label 0


def test_objects_for_what_is_not_there_or_said_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sources has rows for 'trian', and the data sets are train; nearest: train"):
        trained(tmp_path, "data.train.limit=1", sources={"trian": Rows()})
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(ConfigError, match=r"'train', and so have \[data.train.sources\]; say one of them"):
        trained(tmp_path, f"data.train.sources.a.files=['{tmp_path}/a.jsonl']", sources={"train": Rows()})
    with pytest.raises(ConfigError, match=r"data.train says no rows: name its files, or a source"):
        trained(tmp_path, "data.train.limit=1")
