"""A hook: any of before_training, before_update, after_update, after_evaluate, after_save; called on every rank."""

import attrs

from ike_core import TrainingError


@attrs.define
class StopOnSpike:
    """Ends the run when the gradient norm leaps, and names this rank's rows of that step."""

    times: float = 10.0
    """How many times the usual norm is too much."""
    usual: float = attrs.field(default=0.0, init=False)

    def after_update(self, report, context):
        norm = float(report.update.grad_norm)
        if self.usual and norm > self.times * self.usual:
            rows = ", ".join(example.source for example in report.examples)
            raise TrainingError(f"step {report.step}: gradient norm {norm:.3g}, usually {self.usual:.3g}; rows: {rows}")
        self.usual = 0.9 * self.usual + 0.1 * norm if self.usual else norm

    def state(self):
        return {"usual": self.usual}

    def restore(self, state):
        self.usual = state["usual"]
