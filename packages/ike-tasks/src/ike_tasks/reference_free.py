"""Pairwise objectives without a reference: ORPO, SimPO and CPO.

E pairs of the micro-batch. All three log accuracy, margin and rewards by the reward that each is about.
"""

import attrs
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.step_output import StepOutput
from ike_tasks import pair_losses
from ike_tasks.pairs import pair_lengths, pair_logprobs, pair_output

_POSITIVE = attrs.validators.gt(0.0)
_NOT_NEGATIVE = attrs.validators.ge(0.0)


@attrs.frozen
class ORPO:
    """Cross-entropy on the chosen answer, and the odds of the two: -log p_c + lambda (-log sigmoid(log odds ratio)).

    Hong et al. 2024, eq. 6 and 7, arXiv:2403.07691. log p is averaged over an answer's tokens. A margin is taken off
    the log odds ratio.
    """

    odds_weight: float = attrs.field(default=0.1, validator=_NOT_NEGATIVE)
    """The paper's lambda."""
    margin_scale: float = attrs.field(default=1.0, validator=_NOT_NEGATIVE)
    """What a pair's `margin` is multiplied by; 0: margins are not used."""

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:  # noqa: ARG002
        logp_E2, lengths_E2, margins_E = _scores(model, batch, self.margin_scale)
        odds_E2 = log_odds(logp_E2 / lengths_E2)
        losses_E = pair_losses.sft(logp_E2[:, 0], lengths_E2[:, 0])
        odds_loss_E = -logsigmoid(odds_E2[:, 0] - odds_E2[:, 1] - margins_E)
        return pair_output(losses_E + self.odds_weight * odds_loss_E, odds_E2, batch)


@attrs.frozen
class SimPO:
    """-log sigmoid(beta (log p_c / |c| - log p_r / |r|) - gamma).  Meng et al. 2024, eq. 6, arXiv:2405.14734

    A pair's own margin adds to gamma.
    """

    beta: float = attrs.field(default=2.0, validator=_POSITIVE)
    """Scale of rewards, which are averages over tokens."""
    gamma: float = attrs.field(default=1.0, validator=_NOT_NEGATIVE)
    """By how much the chosen answer's reward is to be the larger."""
    sft_weight: float = attrs.field(default=0.0, validator=_NOT_NEGATIVE)
    """Of the chosen answer's cross-entropy a token, in addition (CPO-SimPO)."""
    margin_scale: float = attrs.field(default=1.0, validator=_NOT_NEGATIVE)
    """What a pair's `margin` is multiplied by; 0: margins are not used."""

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:  # noqa: ARG002
        logp_E2, lengths_E2, margins_E = _scores(model, batch, self.margin_scale)
        rewards_E2 = self.beta * logp_E2 / lengths_E2
        losses_E = -logsigmoid(rewards_E2[:, 0] - rewards_E2[:, 1] - self.gamma - margins_E)
        return pair_output(losses_E + _sft(self.sft_weight, logp_E2, lengths_E2), rewards_E2, batch)


@attrs.frozen
class CPO:
    """DPO with a uniform reference, and cross-entropy on the chosen answer.  Xu et al. 2024, eq. 3, arXiv:2401.08417

    The paper's second term sums over tokens; averaged, as here and in its code, long answers weigh no more.
    """

    beta: float = attrs.field(default=0.1, validator=_POSITIVE)
    """Scale of rewards."""
    sft_weight: float = attrs.field(default=1.0, validator=_NOT_NEGATIVE)
    """Of the chosen answer's cross-entropy a token."""
    margin_scale: float = attrs.field(default=1.0, validator=_NOT_NEGATIVE)
    """What a pair's `margin` is multiplied by; 0: margins are not used."""

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:  # noqa: ARG002
        logp_E2, lengths_E2, margins_E = _scores(model, batch, self.margin_scale)
        losses_E = pair_losses.sigmoid(logp_E2[:, 0], logp_E2[:, 1], beta=self.beta, margin=margins_E)
        return pair_output(losses_E + _sft(self.sft_weight, logp_E2, lengths_E2), self.beta * logp_E2, batch)


def log_odds(logp: Tensor) -> Tensor:
    """log p / (1 - p) from log p, finite also where p rounds to 1."""
    below_zero = logp.clamp(max=-torch.finfo(logp.dtype).eps)
    return below_zero - torch.log(-torch.expm1(below_zero))


def _scores(model: nn.Module, batch: Batch, margin_scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """log p [E, 2], lengths [E, 2] of 1 at least, margins [E]."""
    logp_E2 = pair_logprobs(model, batch)
    margins_E = margin_scale * batch["margins"]
    return logp_E2, pair_lengths(batch).clamp(min=1).to(logp_E2.dtype), margins_E.to(logp_E2.dtype)


def _sft(weight: float, logp_E2: Tensor, lengths_E2: Tensor) -> Tensor | float:
    return weight * pair_losses.sft(logp_E2[:, 0], lengths_E2[:, 0]) if weight else 0.0
