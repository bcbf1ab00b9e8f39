"""What an objective returns for one micro-batch."""

from collections.abc import Mapping, Sequence

import attrs

from ike_core.mean import Mean


@attrs.frozen
class StepOutput:
    """The loss, and what else to log."""

    loss: Mean | Sequence[tuple[float, Mean]]
    """One term, or several with their coefficients; each is divided by its own weight of the whole step."""
    metrics: Mapping[str, Mean] = attrs.field(factory=dict)
    """Logged under these names; no gradient flows."""

    @property
    def terms(self) -> Sequence[tuple[float, Mean]]:
        return [(1.0, self.loss)] if isinstance(self.loss, Mean) else self.loss
