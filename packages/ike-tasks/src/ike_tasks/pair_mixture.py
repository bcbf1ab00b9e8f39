"""Losses over pairs by their names, alone or several with weights: what `loss` of an objective may say.

A new one is a formula in `pair_losses` and a line in LOSSES.
"""

from collections.abc import Callable, Iterable, Mapping

import attrs
from torch import Tensor

from ike_tasks import pair_losses


@attrs.frozen
class Pairs:
    """What a loss sees of E pairs. Column 0 is the chosen answer's."""

    logp: Tensor
    """log pi(y|x), [E, 2]."""
    reference: Tensor
    """log pi_ref(y|x), [E, 2]."""
    lengths: Tensor
    """Supervised tokens, [E, 2]."""
    margins: Tensor
    """By how much the chosen answer is better, in rewards, [E]."""
    closeness: Tensor | None = None
    """How near each pair is to what the policy itself would say (WPO), [E]; None: it was not asked for."""

    @property
    def both_ratios(self) -> Tensor:
        """log pi(y|x) - log pi_ref(y|x), [E, 2]."""
        return self.logp - self.reference

    @property
    def ratios(self) -> tuple[Tensor, Tensor]:
        """Of chosen and of rejected, [E] each."""
        chosen_E, rejected_E = self.both_ratios.unbind(1)
        return chosen_E, rejected_E

    @property
    def ratios_a_token(self) -> tuple[Tensor, Tensor]:
        """The same, averaged over the answer's tokens."""
        chosen_E, rejected_E = (self.both_ratios / self.lengths.clamp(min=1)).unbind(1)
        return chosen_E, rejected_E


@attrs.frozen(kw_only=True)
class LossSettings:
    """The numbers in the formulas."""

    beta: float
    label_smoothing: float
    discopop_tau: float


PairLoss = Callable[[Pairs, LossSettings], Tensor]
"""-> one loss a pair, [E]."""

LOSSES: Mapping[str, PairLoss] = {
    "sigmoid": lambda pairs, own: pair_losses.sigmoid(*pairs.ratios, beta=own.beta, margin=pairs.margins),
    "hinge": lambda pairs, own: pair_losses.hinge(*pairs.ratios, beta=own.beta, margin=pairs.margins),
    "ipo": lambda pairs, own: pair_losses.ipo(*pairs.ratios_a_token, beta=own.beta, margin=pairs.margins),
    "robust": lambda pairs, own: pair_losses.robust(
        *pairs.ratios, beta=own.beta, label_smoothing=own.label_smoothing, margin=pairs.margins
    ),
    "conservative": lambda pairs, own: pair_losses.conservative(
        *pairs.ratios, beta=own.beta, label_smoothing=own.label_smoothing, margin=pairs.margins
    ),
    "exo_pair": lambda pairs, own: pair_losses.exo_pair(
        *pairs.ratios, beta=own.beta, label_smoothing=own.label_smoothing, margin=pairs.margins
    ),
    "discopop": lambda pairs, own: pair_losses.discopop(
        *pairs.ratios, beta=own.beta, tau=own.discopop_tau, margin=pairs.margins
    ),
    "sigmoid_norm": lambda pairs, own: pair_losses.sigmoid(*pairs.ratios_a_token, beta=own.beta, margin=pairs.margins),
    "apo_zero": lambda pairs, own: pair_losses.apo_zero(*pairs.ratios, beta=own.beta, margin=pairs.margins),
    "apo_down": lambda pairs, own: pair_losses.apo_down(*pairs.ratios, beta=own.beta, margin=pairs.margins),
    "nca_pair": lambda pairs, own: pair_losses.nca_pair(*pairs.ratios, beta=own.beta, margin=pairs.margins),
    "sppo_hard": lambda pairs, own: pair_losses.sppo_hard(*pairs.ratios, beta=own.beta, margin=pairs.margins),
    "sft": lambda pairs, own: pair_losses.sft(pairs.logp[:, 0], pairs.lengths[:, 0]),  # noqa: ARG005
}
COUPLED = ("aot", "aot_unpaired", "bco_pair")
"""What only the whole step can say."""
_SMOOTHED = ("robust", "conservative", "exo_pair", "aot", "aot_unpaired")
_DIVIDE_BY_BETA = ("ipo", "sppo_hard")
_AVERAGED = ("ipo", "sigmoid_norm", "sft")


def weights_of(loss: str | Mapping[str, float]) -> Mapping[str, float]:
    """A name alone has the weight 1."""
    return {loss: 1.0} if isinstance(loss, str) else loss


def check_losses(
    weights: Mapping[str, float], settings: LossSettings, *, ld_alpha: float, known: Iterable[str]
) -> None:
    """ValueError for an unknown name, for numbers that a formula can't take, and for those that no formula reads."""
    if not weights:
        raise ValueError(f"'loss' names none; known are {', '.join(known)}")
    for name in weights:
        if name in COUPLED and name not in known:
            raise ValueError(
                f"'loss' = {name!r} couples the pairs of a step: ike_tasks:CoupledDPO learns by it, "
                'so say objective.uses = "ike_tasks:CoupledDPO"'
            )
        if name not in known:
            raise ValueError(f"'loss' = {name!r} is unknown; known are {', '.join(known)}")
        if name in _DIVIDE_BY_BETA and settings.beta == 0:
            raise ValueError(f"'beta' must be > 0 for {name}, which divides by it")
    if not all(weight > 0 for weight in weights.values()):
        raise ValueError(f"'loss' must give each a weight above 0: {dict(weights)}")
    if settings.label_smoothing and not set(weights) & set(_SMOOTHED):
        raise ValueError(f"'label_smoothing' is read by {', '.join(_SMOOTHED)}, and 'loss' is {', '.join(weights)}")
    if ld_alpha != 1.0 and set(weights) & set(_AVERAGED):
        raise ValueError(f"'ld_alpha' weighs what {', '.join(_AVERAGED)} average over tokens already; leave it out")
    if "exo_pair" in weights and not settings.label_smoothing:
        raise ValueError("'label_smoothing' must be > 0 for exo_pair; its paper uses 1e-3")


def mixed(weights: Mapping[str, float], pairs: Pairs, settings: LossSettings) -> Tensor:
    """The losses of each pair, summed with their weights, [E]."""
    first, *others = (weight * LOSSES[name](pairs, settings) for name, weight in weights.items())
    return sum(others, start=first)
