"""Parts of a user's, for runs on several ranks."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ike_core import Batch, Context, Example, Mean, StepOutput
from ike_tasks import target_logprobs


@attrs.frozen
class TokenRows:
    """{"tokens": [...]}: the second half is learned."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        tokens = record["tokens"]
        half = len(tokens) // 2
        yield Example.of(tokens, [0.0] * half + [1.0] * (len(tokens) - half), fields={"number": record["number"]})


@attrs.frozen
class Explodes:
    """Cross-entropy that is infinite on one row, from one update on."""

    step: int
    number: int

    def __call__(self, model: Any, batch: Batch, context: Context) -> Mean:
        total = -target_logprobs(model, batch).sum()
        numbers = [example.fields["number"] for example in context.examples]
        bad = context.step == self.step and self.number in numbers
        return Mean(total * math.inf if bad else total, batch.weights["tokens"])


@attrs.frozen
class Drift:
    """Cross-entropy; logs how far the policy's log-probabilities are from those of the frozen reference."""

    def __call__(self, model: Any, batch: Batch, context: Context) -> StepOutput:
        import torch

        with torch.no_grad():
            reference_N = target_logprobs(context.frozen["reference"], batch)
        policy_N = target_logprobs(model, batch)
        weight = batch.weights["tokens"]
        drift = Mean((policy_N.detach() - reference_N).abs().sum(), weight)
        return StepOutput(Mean(-policy_N.sum(), weight), {"drift": drift, "reference": Mean(reference_N.sum(), weight)})


class BrokenTracker:
    """A service that is not there, or goes away."""

    def __init__(self, *, at: str) -> None:
        self.at, self.calls = at, 0

    def start(self, run: Any) -> None:
        if self.at == "start":
            raise ConnectionError("no network")

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        self.calls += 1
        if self.at == "log" and self.calls == 3:
            raise ConnectionError("gone away")

    def finish(self) -> None: ...


class NoNetwork(BrokenTracker):
    def __init__(self) -> None:
        super().__init__(at="start")


class GoesAway(BrokenTracker):
    def __init__(self) -> None:
        super().__init__(at="log")
