"""DPO by losses that couple the pairs of a step: aot, aot_unpaired and bco_pair, alone or mixed with any of DPO's.

E pairs of the step, e of a micro-batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.examples import AnyExample, Comparison
from ike_core.mean import Mean
from ike_core.step_output import StepOutput
from ike_tasks.pair_losses import bco_pair
from ike_tasks.pair_mixture import COUPLED, LOSSES, LossSettings, Pairs, check_losses, weights_of
from ike_tasks.pair_scores import REFERENCE, reference_pairs
from ike_tasks.pairs import logp_metrics, pair_lengths, pair_logprobs, reward_metrics
from ike_tasks.running_mean import RewardShift
from ike_tasks.step_tensors import step_tensor
from ike_tasks.transport_losses import aot, aot_unpaired


@attrs.frozen
class CoupledDPO:
    """As `DPO`, over all pairs of a step at once, whatever the ranks and micro-batches.

    aot sorts over the step: the paper's batch is the step, where TRL sorts each micro-batch of each device and so
    another loss for another cut. bco_pair's shift is the mean of all rewards so far, this step's included: it goes on
    over a resume.
    """

    beta: float = attrs.field(default=0.1, validator=attrs.validators.ge(0.0))
    """Scale of rewards."""
    loss: str | Mapping[str, float] = "aot"
    """aot, aot_unpaired, bco_pair, or one of DPO's; or several with weights: { sigmoid = 0.8, bco_pair = 0.2 }."""
    label_smoothing: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(0.5)])
    """Share of pairs whose label is taken to be flipped, for aot and aot_unpaired too."""
    discopop_tau: float = attrs.field(default=0.05, validator=attrs.validators.gt(0.0))
    """Temperature of discopop's blend."""
    margin_scale: float = attrs.field(default=1.0, validator=attrs.validators.ge(0.0))
    """A pair's `margin`, times this, is taken off the chosen answer's reward. 0: margins are not used."""
    _shift: RewardShift = attrs.field(factory=RewardShift, init=False, eq=False, repr=False)

    needs_frozen = (REFERENCE,)

    def __attrs_post_init__(self) -> None:
        check_losses(weights_of(self.loss), self._settings, ld_alpha=1.0, known=(*LOSSES, *COUPLED))

    def widen(self, examples: Sequence[AnyExample]) -> Sequence[AnyExample]:
        return examples

    def scores(self, model: nn.Module, batch: Batch, context: Context) -> Tensor:
        """[e, 6]: log-probabilities of the two answers, the reference's, and lengths."""
        logp_e2 = pair_logprobs(model, batch)
        others = (reference_pairs(batch, context, like=logp_e2), pair_lengths(batch).to(logp_e2.dtype))
        return torch.cat([logp_e2, *others], 1)

    def couple(self, scores_EK: Tensor, examples: Sequence[AnyExample], context: Context) -> StepOutput:
        margins = [example.margin if isinstance(example, Comparison) else 0.0 for example in examples]
        weights_E = step_tensor([example.weight for example in examples], like=scores_EK)
        margins_E = self.margin_scale * step_tensor(margins, like=scores_EK)
        pairs = Pairs(scores_EK[:, :2], scores_EK[:, 2:4], scores_EK[:, 4:6], margins_E)
        means = {name: self._mean(name, pairs, weights_E, context) for name in weights_of(self.loss)}
        weight = float(sum(example.weight for example in examples))
        total = sum(share * means[name] for name, share in weights_of(self.loss).items())
        return StepOutput(Mean(total * weight, weight, per="pairs"), self._metrics(pairs, weights_E, weight))

    def _mean(self, name: str, pairs: Pairs, weights_E: Tensor, context: Context) -> Tensor:
        """One of the losses over the step, []."""
        smoothing, margins_E = self.label_smoothing, pairs.margins
        if name == "aot":
            gaps = (logp_E2[:, 0] - logp_E2[:, 1] for logp_E2 in (pairs.logp, pairs.reference))
            return aot(*gaps, beta=self.beta, label_smoothing=smoothing, margin=margins_E, weights=weights_E)
        if name == "aot_unpaired":
            return aot_unpaired(
                *pairs.ratios, beta=self.beta, label_smoothing=smoothing, margin=margins_E, weights=weights_E
            )
        if name == "bco_pair":
            chosen, rejected = ((reward_E, weights_E) for reward_E in (self.beta * pairs.both_ratios).unbind(1))
            shift = self._shift.at(chosen, rejected, context).to(margins_E.dtype)
            losses_E = bco_pair(*pairs.ratios, beta=self.beta, shift=shift, margin=margins_E)
        else:
            losses_E = LOSSES[name](pairs, self._settings)
        return (losses_E * weights_E).sum() / weights_E.sum()

    def _metrics(self, pairs: Pairs, weights_E: Tensor, weight: float) -> dict[str, Mean]:
        values = {**reward_metrics(self.beta * pairs.both_ratios), **logp_metrics(pairs.logp)}
        return {name: Mean((value_E * weights_E).sum(), weight, per="pairs") for name, value_E in values.items()}

    def state(self) -> Mapping[str, Any]:
        """The running means of bco_pair."""
        return self._shift.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._shift.restore(state)

    @property
    def _settings(self) -> LossSettings:
        return LossSettings(beta=self.beta, label_smoothing=self.label_smoothing, discopop_tau=self.discopop_tau)
