"""A frozen model that is no model: what it says of the run's own rows was computed once, and is read from disk."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.errors import TrainingError
from ike_core.examples import AnyExample
from ike_tasks.answers_read import answers_of
from ike_tasks.kept_logprobs import KeptLogprobs
from ike_tasks.scoring import ScoringModel

FROZEN = "frozen_logprobs"
"""Where a batch holds them: name of the frozen model -> [N]."""


class PrecomputedModel(ScoringModel):
    """In the place of a frozen model: `target_logprobs` reads what the batch brings along."""

    def __init__(self, name: str) -> None:
        super().__init__(nn.Identity(), is_lean=False, packing_refusal="")
        self.name = name

    def forward(self, *args: Any, scored: Batch | None = None, **inputs: Any) -> Any:
        if scored is None or args or any(inputs.values()):
            raise TrainingError(
                f"frozen.{self.name}: precomputed = true keeps log-probabilities of the rows' own tokens alone, and "
                "the objective asks the model for more; leave out precomputed"
            )
        return scored[FROZEN][self.name]

    def logit_source(self, batch: Batch) -> Any:
        """A whole distribution was not kept."""
        return self.forward(batch)


@attrs.frozen
class WithLogprobs:
    """A collate whose batches bring along what a frozen model says of them."""

    name: str
    kept: KeptLogprobs
    collate: Callable[[Sequence[AnyExample]], Batch]
    dtype: torch.dtype

    def __call__(self, examples: Sequence[AnyExample]) -> Batch:
        batch = self.collate(examples)
        found = [part for example in examples for part in self._of(example)]
        logp_N = torch.cat([torch.empty(0, dtype=self.dtype), *found])
        others = batch.tensors.get(FROZEN, {})
        return attrs.evolve(batch, tensors={**batch.tensors, FROZEN: {**others, self.name: logp_N}})

    def _of(self, example: AnyExample) -> list[Tensor]:
        """As the batch has its targets: what the trunk says once, then each answer's own."""
        parts = []
        for number, answer in enumerate(answers_of(example)):
            logp = self.kept.find(answer.name)
            if logp is None or len(logp) != answer.shared + answer.own:
                raise TrainingError(
                    f"{example.source}: what frozen.{self.name} says of it was not computed beforehand; an objective "
                    "that makes rows of its own, as KTO does, needs the model: leave out precomputed"
                )
            parts.append(logp[answer.shared :] if number else logp)
        return parts
