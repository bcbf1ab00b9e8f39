"""DPO and its variants: preferences learned against a reference, one pair at a time.

E pairs of the micro-batch.
"""

from collections.abc import Mapping

import attrs
from torch import nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.step_output import StepOutput
from ike_tasks.pair_mixture import LOSSES, LossSettings, check_losses, mixed, weights_of
from ike_tasks.pair_scores import REFERENCE, score_pairs
from ike_tasks.pairs import logp_metrics, pair_mean, pair_output


@attrs.frozen
class DPO:
    """Direct preference optimisation: the chosen answer's reward beta log(pi / pi_ref) above the rejected one's.

    Rafailov et al. 2023, arXiv:2305.18290. A row's `weight` weighs its pair in the mean. `[frozen.reference]` is the
    reference.
    """

    beta: float = attrs.field(default=0.1, validator=attrs.validators.ge(0.0))
    """Scale of rewards: how dear it is to leave the reference. For ipo the paper's tau."""
    loss: str | Mapping[str, float] = "sigmoid"
    """sigmoid, hinge, ipo, robust, conservative, exo_pair, discopop, sigmoid_norm, apo_zero, apo_down, nca_pair,
    sppo_hard or sft; or several with their weights: { sigmoid = 1.0, sft = 0.2 }."""
    label_smoothing: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(0.5)])
    """Share of pairs whose label is taken to be flipped, for robust, conservative and exo_pair."""
    discopop_tau: float = attrs.field(default=0.05, validator=attrs.validators.gt(0.0))
    """Temperature of discopop's blend."""
    ld_alpha: float = attrs.field(default=1.0, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)])
    """Weight of an answer's tokens beyond the length of the shorter one (LD-DPO); 1: all count alike."""

    wpo: bool = False
    """Weigh each pair by how near its answers are to the policy's own (WPO); no gradient flows through that."""
    margin_scale: float = attrs.field(default=1.0, validator=attrs.validators.ge(0.0))
    """A pair's `margin`, times this, is taken off the chosen answer's reward. 0: margins are not used."""

    needs_frozen = (REFERENCE,)

    def __attrs_post_init__(self) -> None:
        check_losses(weights_of(self.loss), self._settings, ld_alpha=self.ld_alpha, known=LOSSES)

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:
        pairs = score_pairs(model, batch, context, ld_alpha=self.ld_alpha, margin_scale=self.margin_scale, wpo=self.wpo)
        losses_E, others = mixed(weights_of(self.loss), pairs, self._settings), logp_metrics(pairs.logp)
        if pairs.closeness is not None:
            losses_E, others = losses_E * pairs.closeness, {**others, "closeness": pairs.closeness}
        output = pair_output(losses_E, self.beta * pairs.both_ratios, batch)
        means = {name: pair_mean(value_E, batch) for name, value_E in others.items()}
        return attrs.evolve(output, metrics={**output.metrics, **means})

    @property
    def _settings(self) -> LossSettings:
        return LossSettings(beta=self.beta, label_smoothing=self.label_smoothing, discopop_tau=self.discopop_tau)
