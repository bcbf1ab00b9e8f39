"""Parts of a user's whose runs are cut short and taken up again."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import torch

from ike_core import Batch, Context, Example, Mean, StepOutput
from ike_core.interfaces import StepReport
from ike_tasks import target_logprobs


@attrs.frozen
class TokenRows:
    """{"tokens": [...]}: the second half is learned."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        tokens = record["tokens"]
        half = len(tokens) // 2
        yield Example.of(tokens, [0.0] * half + [1.0] * (len(tokens) - half))


class CutError(Exception):
    """In the place of a kill."""


@attrs.frozen
class CutsShort:
    """Ends the run in the step after `step`."""

    step: int

    def after_update(self, report: StepReport, context: Context) -> None:
        if report.step == self.step + 1:
            raise CutError


@attrs.define
class MeanWeights:
    """A mean of one tensor over the run, as a hook that outlives a step."""

    mean: Any = None
    seen: int = 0

    def before_update(self, engine: Any, context: Context) -> None:
        """Not collective: what the model holds on this rank does not matter, only that it is kept."""
        self.seen += 1
        value = torch.full((3,), float(self.seen))
        self.mean = value if self.mean is None else 0.9 * self.mean + 0.1 * value

    def state(self) -> Mapping[str, Any]:
        return {"mean": self.mean, "seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.mean, self.seen = state["mean"], state["seen"]


@attrs.define
class AboveItsMean:
    """Couples the examples of a step, and steps by a running mean: the loss of an example above it counts double."""

    mean: float = 0.0

    def widen(self, examples: Sequence[Any]) -> Sequence[Any]:
        return examples

    def scores(self, model: Any, batch: Batch, context: Context) -> Any:
        logp_N = target_logprobs(model, batch)
        return logp_N.new_zeros(len(batch["ends"])).index_add(0, batch["target_paths"], logp_N)[:, None][
            : int(batch.weights["examples"])
        ]

    def couple(self, scores_EK: Any, examples: Sequence[Any], context: Context) -> StepOutput:
        loss_E = -scores_EK[:, 0]
        weight_E = 1.0 + (loss_E.detach() > self.mean)
        if context.training:
            self.mean = 0.5 * self.mean + 0.5 * float(loss_E.detach().mean())
        return StepOutput(Mean((weight_E * loss_E).sum(), float(len(examples)), per="examples"))

    def state(self) -> Mapping[str, Any]:
        return {"mean": self.mean}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.mean = state["mean"]
