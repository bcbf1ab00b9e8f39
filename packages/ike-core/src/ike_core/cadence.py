"""When to log, to evaluate and to save: functions of the number of finished updates."""

import math

import attrs

from ike_core.config.sections import CadenceSection, Every


@attrs.frozen(kw_only=True)
class Due:
    """What is to be done after a step."""

    log: bool
    evaluate: bool
    save: bool


@attrs.frozen
class Cadence:
    """`[cadence]` over a training set of known length."""

    section: CadenceSection
    steps_per_epoch: int
    """Updates of one pass over the training set."""

    def due(self, step: int, *, last: bool) -> Due:
        """What is due once `step` updates are finished; 0 is before the first. At the `last` everything is."""
        return Due(
            log=last or self.falls(self.section.log, step),
            evaluate=last or step == 0 or self.falls(self.section.evaluate, step),
            save=last or (self.section.save is not None and self.falls(self.section.save, step)),
        )

    def falls(self, every: Every, step: int) -> bool:
        """Whether a multiple of `every`, rounded to the nearest step, is this one; never at step 0."""
        if every.steps is not None:
            return step > 0 and step % every.steps == 0
        assert every.epochs is not None
        period = every.epochs * self.steps_per_epoch
        # The multiples that round to `step` lie in [step - 1/2, step + 1/2): is there one?
        multiple = math.ceil((step - 0.5) / period)
        return step > 0 and math.floor(multiple * period + 0.5) == step
