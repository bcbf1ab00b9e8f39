"""BCO: a classifier of good and bad answers whose logit is the reward, shifted by what rewards are on the whole.

E rows of the step, e of a micro-batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.examples import AnyExample, LabelledExample
from ike_core.mean import Mean
from ike_core.step_output import StepOutput
from ike_tasks.feedback import labelled
from ike_tasks.feedback_scores import feedback_metrics, score_answers
from ike_tasks.pair_losses import wide
from ike_tasks.pair_scores import REFERENCE
from ike_tasks.running_mean import RewardShift
from ike_tasks.step_tensors import step_tensor


@attrs.frozen
class BCO:
    """-log sigmoid(beta r - d) of a good answer, -log sigmoid(d - beta r) of a bad one, r = log pi / pi_ref.

    Jung et al. 2024, arXiv:2404.04656. d lies half way between the mean rewards of good and of bad answers over all
    steps so far, this one included; it goes on over a resume. TRL's has been the running mean of all rewards alike,
    which the larger class pulls to its side. Pairs are taken apart into a good and a bad answer.
    """

    beta: float = attrs.field(default=0.1, validator=attrs.validators.ge(0.0))
    """Scale of rewards."""
    _shift: RewardShift = attrs.field(factory=RewardShift, init=False, eq=False, repr=False)

    needs_frozen = (REFERENCE,)

    def widen(self, examples: Sequence[AnyExample]) -> Sequence[LabelledExample]:
        return labelled(examples)

    def scores(self, model: nn.Module, batch: Batch, context: Context) -> Tensor:
        """[e, 2]: the answer's log-probability, and the reference's."""
        return score_answers(model, batch, context)

    def couple(self, scores_EK: Tensor, examples: Sequence[LabelledExample], context: Context) -> StepOutput:
        rewards_E = self.beta * (scores_EK[:, 0] - scores_EK[:, 1])
        weights_E = step_tensor([row.weight for row in examples], like=scores_EK)
        is_good_E = step_tensor([float(row.desirable) for row in examples], like=scores_EK)
        good, bad = (rewards_E, weights_E * is_good_E), (rewards_E, weights_E * (1 - is_good_E))
        shift = self._shift.at(good, bad, context).to(rewards_E.dtype)
        mean = (bco(rewards_E, 2 * is_good_E - 1, shift) * weights_E).sum() / weights_E.sum()
        count = float(len(examples))
        metrics = feedback_metrics(rewards_E, examples) | {"shift": Mean(shift * count, count, per="examples")}
        return StepOutput(Mean(mean * count, count, per="examples"), metrics)

    def state(self) -> Mapping[str, Any]:
        """The running means."""
        return self._shift.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._shift.restore(state)


def bco(rewards_E: Tensor, signs_E: Tensor, shift: Tensor) -> Tensor:
    """-log sigmoid(sign (reward - shift)), [E]; sign 1 of a good answer, -1 of a bad one."""
    return -logsigmoid(wide(signs_E) * (wide(rewards_E) - wide(shift)))
