"""What a model and its reference say of single answers, and what is logged of their rewards.

E rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.examples import LabelledExample
from ike_core.mean import Mean
from ike_tasks.pair_scores import REFERENCE
from ike_tasks.paths import path_logprobs
from ike_tasks.step_tensors import step_tensor


def score_answers(model: nn.Module, batch: Batch, context: Context) -> Tensor:
    """[E, 2]: each answer's log-probability, and the reference's; that is left 0 where a gradient is made."""
    logp_E = path_logprobs(model, batch)
    if torch.is_grad_enabled():
        return torch.stack([logp_E, torch.zeros_like(logp_E)], 1)
    return torch.stack([logp_E, path_logprobs(context.frozen[REFERENCE], batch).to(logp_E.dtype)], 1)


def feedback_metrics(rewards_E: Tensor, rows: Sequence[LabelledExample]) -> dict[str, Mean]:
    """Mean rewards of good and of bad answers, each over its own rows."""
    return {
        name: _mean_reward(rewards_E, rows, is_good=is_good)
        for name, is_good in (("rewards/desirable", True), ("rewards/undesirable", False))
    }


def _mean_reward(rewards_E: Tensor, rows: Sequence[LabelledExample], *, is_good: bool) -> Mean:
    weights = [row.weight if row.desirable == is_good else 0.0 for row in rows]
    total = (rewards_E.detach() * step_tensor(weights, like=rewards_E)).sum()
    return Mean(total, float(sum(weights)), per="examples")
