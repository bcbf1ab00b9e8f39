"""What the slicing grid trains with: rows of token ids, and objectives of every kind that a loss can be.

E examples of a step or a micro-batch, N supervised tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from ike_core import Batch, Context, Example, Mean, StepOutput
from ike_tasks import target_logprobs


@attrs.frozen
class TokenRows:
    """Rows that are token ids already: {"tokens": [...], "learned": [0 or 1 a token]}."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        yield Example.of(record["tokens"], record["learned"])


def plain(model: Any, samples: Mapping[str, Any]) -> Tensor:
    """A user's function: the bare scalar that transformers returns."""
    return model(**samples).loss


def path_sums(model: Any, batch: Batch) -> Tensor:
    """[E]: the log-probability of each example's answer."""
    logp_N = target_logprobs(model, batch)
    return logp_N.new_zeros(batch["ends"].numel()).index_add(0, batch["target_paths"], logp_N)


@attrs.frozen
class TwoTerms:
    """Cross-entropy over tokens, and half the mean square over examples of the answer's log-probability / 100."""

    def __call__(self, model: Any, batch: Batch, context: Context) -> StepOutput:
        sums_E = path_sums(model, batch)
        tokens = Mean(-sums_E.sum(), batch.weights["tokens"])
        squares = Mean((sums_E / 100).square().sum(), batch.weights["examples"], per="examples")
        return StepOutput([(1.0, tokens), (0.5, squares)], {"square": squares})


@attrs.frozen
class Spread:
    """A loss that no example has alone: the variance over the step of the answers' log-probabilities / 100."""

    def widen(self, examples: Sequence[Any]) -> Sequence[Any]:
        return examples

    def scores(self, model: Any, batch: Batch, context: Context) -> Tensor:
        return path_sums(model, batch).unsqueeze(1) / 100

    def couple(self, scores_EK: Tensor, examples: Sequence[Any], context: Context) -> StepOutput:
        centred_EK = scores_EK - scores_EK.mean(0)
        return StepOutput(Mean(centred_EK.square().sum(), float(len(examples)), per="examples"))


def lift_norms() -> None:
    """RMSNorm computes in float32 whatever the model's dtype: the float64 yardstick needs all of it in float64."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    def forward(self: Any, hidden: Tensor) -> Tensor:
        return self.weight * hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.variance_epsilon)

    LlamaRMSNorm.forward = forward
