"""A user's own file: one part for every table of a run, none of them with a base class of ike's.

The model is one number theta, with logits [theta, 0] at every place: at theta = 0 a token's loss is ln 2, and its slope
in theta is -1/2 for label 0 and +1/2 for label 1. B rows of a micro-batch, T tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from ike_core import Batch, Example, Mean, Skip, Vocabulary


@attrs.frozen
class Labels:
    """{"labels": [1, 0], "scale": 1}: a first token that has no predecessor, then these, all learned."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        labels = record["labels"]
        yield Example.of([0, *labels], [0.0] + [1.0] * len(labels), fields={"scale": record.get("scale", 1.0)})


class OneNumber(nn.Module):
    """Logits [theta, 0], [B, T] -> [B, T, 2]"""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(vocab_size=2, pad_token_id=0, bos_token_id=None, eos_token_id=None)

    def forward(self, input_ids_BT: Tensor) -> Tensor:
        logits = torch.cat([self.theta, torch.zeros_like(self.theta)])
        return logits.expand(*input_ids_BT.shape, 2)


@attrs.frozen
class Model:
    """A ModelPart."""

    def build(self, context: Any) -> nn.Module:
        return OneNumber().to(context.dtype)


@attrs.frozen
class Scaled:
    """An objective: cross-entropy, times the scale of its row."""

    def __call__(self, model: Any, batch: Batch, context: Any) -> Mean:
        logits, labels = model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)
        scales = torch.tensor([row.fields["scale"] for row in context.examples] or [0.0], device=losses.device)
        return Mean((losses * scales[:, None]).sum(), batch.weights["tokens"])


@attrs.frozen
class Descent:
    """An OptimizerPart."""

    def build(self, named_parameters: Any, groups: Sequence[Mapping[str, Any]], context: Any) -> Any:
        return torch.optim.SGD([dict(group) for group in groups])


@attrs.frozen
class Shrinking:
    """A SchedulePart."""

    by: float = 0.5

    def __call__(self, step: int, steps: int) -> float:
        return self.by**step


@attrs.define
class Watcher:
    """A Hook of all four moments that is Stateful: what it saw is its state."""

    seen: list[str] = attrs.field(factory=list, init=False)

    def before_update(self, engine: Any, context: Any) -> None:
        self.seen.append(f"before update {context.step + 1}")

    def after_update(self, report: Any, context: Any) -> None:
        self.seen.append(f"after update {report.step}")

    def after_evaluate(self, values: Mapping[str, float], context: Any) -> None:
        self.seen.append(f"after evaluation at {context.step}: {values['evaluate/echo/rows']:g} rows")

    def after_save(self, folder: Path, context: Any) -> None:
        self.seen.append(f"after save of {folder.name}")

    def state(self) -> Mapping[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = list(state["seen"])


@attrs.frozen
class Echo:
    """An InferenceTask: says of every record how many tokens it has, and on which rank it was read."""

    def prepare(self, record: Mapping[str, Any]) -> Example | Skip:
        tokens = record["tokens"]
        return Example.of(tokens, [0.0] * len(tokens)) if tokens else Skip("no tokens")

    def collate(self, examples: Sequence[Example], vocabulary: Vocabulary) -> Batch:
        rows = [list(example.trunk.tokens) for example in examples] or [[vocabulary.pad]]
        longest = max(map(len, rows))
        padded_BT = torch.tensor([row + [vocabulary.pad] * (longest - len(row)) for row in rows])
        return Batch({"input_ids": padded_BT}, {"examples": float(len(examples))})

    def __call__(self, model: Any, batch: Batch, context: Any) -> Sequence[Mapping[str, Any]]:
        model(batch["input_ids"])
        return [{"length": len(example), "rank": context.rank} for example in context.examples]

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
        rows = list(rows)
        numbers = [row["number"] for row in rows]
        return {
            "rows": len(rows),
            "in_order": float(numbers == sorted(set(numbers))),
            "tokens": sum(row["length"] for row in rows),
            "ranks": len({row["rank"] for row in rows}),
        }
