"""KTO: answers that someone found good or bad, each alone, against a baseline that the whole step shares.

E rows of the step with their mismatched ones, n rows without, e rows of a micro-batch.
"""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.examples import AnyExample, LabelledExample
from ike_core.mean import Mean
from ike_core.step_output import StepOutput
from ike_tasks.feedback import labelled, mismatched
from ike_tasks.feedback_scores import feedback_metrics, score_answers
from ike_tasks.pair_losses import wide
from ike_tasks.pair_scores import REFERENCE
from ike_tasks.step_tensors import step_tensor

_NOT_NEGATIVE = attrs.validators.ge(0.0)


@attrs.frozen
class KTO:
    """l_D (1 - sigmoid(beta r - z)) of a good answer, l_U (1 - sigmoid(z - beta r)) of a bad one, r = log pi / pi_ref.

    Ethayarajh et al. 2024, eq. 8, arXiv:2402.01306. z is beta times the KL of policy and reference, estimated as there:
    the mean log-ratio of answers that go with other prompts, 0 at least, and no gradient through it. The prompts of a
    step are read with the answer of the next row; paper and TRL do so within a micro-batch, whose size then changes
    the loss. Pairs are taken apart into a good and a bad answer.
    """

    beta: float = attrs.field(default=0.1, validator=_NOT_NEGATIVE)
    """Scale of rewards."""
    desirable_weight: float = attrs.field(default=1.0, validator=_NOT_NEGATIVE)
    """The paper's lambda_D: where classes are unequal, weight times rows of the two is to be within 1 to 4/3."""
    undesirable_weight: float = attrs.field(default=1.0, validator=_NOT_NEGATIVE)
    """The paper's lambda_U."""

    needs_frozen = (REFERENCE,)

    def widen(self, examples: Sequence[AnyExample]) -> Sequence[LabelledExample]:
        """The rows, then their mismatched ones."""
        rows = labelled(examples)
        return [*rows, *mismatched(rows)]

    def scores(self, model: nn.Module, batch: Batch, context: Context) -> Tensor:
        """[e, 2]: the answer's log-probability, and the reference's."""
        return score_answers(model, batch, context)

    def couple(self, scores_EK: Tensor, examples: Sequence[LabelledExample], context: Context) -> StepOutput:  # noqa: ARG002
        ratios_E = scores_EK[:, 0] - scores_EK[:, 1]
        rows = examples[: len(examples) // 2]
        ratios_n, mismatched_n = ratios_E[: len(rows)], ratios_E[len(rows) :]
        baseline = kl_estimate(mismatched_n) if len(rows) > 1 else ratios_E.new_zeros(())
        weights_n = step_tensor([row.weight for row in rows], like=scores_EK)
        signs_n = step_tensor([1.0 if row.desirable else -1.0 for row in rows], like=scores_EK)
        shares_n = step_tensor([self._share(row) for row in rows], like=scores_EK)
        losses_n = shares_n * kto(ratios_n, signs_n, baseline, beta=self.beta)
        mean = (losses_n * weights_n).sum() / weights_n.sum()
        count = float(len(examples))
        metrics = feedback_metrics(self.beta * ratios_n, rows) | {"kl": Mean(baseline * count, count, per="examples")}
        return StepOutput(Mean(mean * count, count, per="examples"), metrics)

    def _share(self, row: LabelledExample) -> float:
        return self.desirable_weight if row.desirable else self.undesirable_weight


def kto(ratios_n: Tensor, signs_n: Tensor, baseline: Tensor, *, beta: float) -> Tensor:
    """1 - sigmoid(sign beta (r - z0)), [n]; sign 1 of a good answer, -1 of a bad one.  Eq. 8 without its lambdas"""
    return torch.sigmoid(-wide(signs_n) * beta * (wide(ratios_n) - wide(baseline)))


def kl_estimate(mismatched_n: Tensor) -> Tensor:
    """z0 = max(0, mean log-ratio of mismatched answers), [], a constant."""
    return mismatched_n.detach().mean().clamp(min=0)
