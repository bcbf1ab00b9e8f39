"""The learning rate as a pure function of the step."""

import math
from typing import Literal

import attrs

from ike_core.errors import ConfigError

Shape = Literal["constant", "linear", "cosine", "wsd"]
WSD_DECAY_SHARE = 0.1  # Hu et al. 2024, section 4.3: a tenth of the updates is enough


@attrs.frozen
class Schedule:
    """Warm-up from 0, then a shape that ends at `final_share`.

    `schedule(k, steps)` is the share of the peak that update k, counted from 0, uses: a warm-up's first update uses 0,
    and the end of the shape is reached after the last update, not by it.
    """

    shape: Shape = "constant"
    """After the warm-up: constant; linear; cosine (Loshchilov and Hutter 2017, arXiv:1608.03983); or wsd, which is
    constant and then linear (warm-up, stable, decay; Hu et al. 2024, arXiv:2404.06395)."""
    warmup_steps: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Updates that rise linearly from 0."""
    final_share: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)])
    """Share of the peak where the shape ends; constant has no end and takes none."""
    decay_share: float | None = attrs.field(
        default=None,
        validator=attrs.validators.optional([attrs.validators.gt(0.0), attrs.validators.le(1.0)]),
    )
    """wsd only: share of all updates that the decay takes; None: 0.1."""

    def __attrs_post_init__(self) -> None:
        if self.decay_share is not None and self.shape != "wsd":
            raise ConfigError(
                f"schedule.decay_share = {self.decay_share} does nothing with schedule.shape = {self.shape!r}; "
                "leave it out, or set schedule.shape = 'wsd'"
            )
        if self.final_share and self.shape == "constant":
            raise ConfigError(
                f"schedule.final_share = {self.final_share} does nothing with schedule.shape = 'constant'; "
                "leave it out, or set schedule.shape to 'linear', 'cosine' or 'wsd'"
            )

    def __call__(self, step: int, steps: int) -> float:
        """The share of the peak after `step` of `steps` updates; ConfigError where the run is too short."""
        assert 0 <= step <= steps, f"step {step} of {steps}"
        decay_steps = self._decay_steps(steps)
        if step < self.warmup_steps:
            return step / self.warmup_steps
        if self.shape == "constant":
            return 1.0
        done = max(0.0, 1.0 - (steps - step) / decay_steps)
        left = 0.5 * (1.0 + math.cos(math.pi * done)) if self.shape == "cosine" else 1.0 - done
        return self.final_share + (1.0 - self.final_share) * left

    def _decay_steps(self, steps: int) -> int:
        """Updates that the decay takes: all after the warm-up, or wsd's share of the run."""
        left = steps - self.warmup_steps
        if left < 0:
            raise ConfigError(
                f"schedule.warmup_steps = {self.warmup_steps} is longer than the run of {steps} updates; "
                f"set schedule.warmup_steps <= {steps}, or lengthen the run ([length])"
            )
        if self.shape != "wsd":
            return left
        share = WSD_DECAY_SHARE if self.decay_share is None else self.decay_share
        decay = max(1, round(share * steps))
        if decay > left:
            raise ConfigError(
                f"schedule.warmup_steps = {self.warmup_steps} and a decay of {decay} updates (schedule.decay_share = "
                f"{share}) don't fit in the run of {steps} updates; shorten one of them, or lengthen the run ([length])"
            )
        return decay
