"""TR-DPO: a reference that follows the policy.  Gorbatovski et al. 2024, arXiv:2404.09656"""

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor

from ike_core.context import Context
from ike_core.errors import ConfigError
from ike_core.interfaces import Engine, StepReport
from ike_tasks.precomputed import PrecomputedModel
from ike_tasks.scoring import ScoringModel


@attrs.define
class _Held:
    """What a hook is given once and keeps."""

    engine: Engine | None = None
    reference: dict[str, Tensor] = attrs.field(factory=dict)
    """By the names that the policy's weights have."""


@attrs.frozen
class MovingReference:
    """A hook: every so many updates the reference becomes share x policy + (1 - share) x reference (eq. 2, 3).

    The reference is a copy of its own, under any ZeRO stage; it is part of a checkpoint.
    """

    share: float = attrs.field(default=0.6, validator=[attrs.validators.gt(0.0), attrs.validators.le(1.0)])
    """The paper's alpha: 1 is its hard update."""
    every_steps: int = attrs.field(default=512, validator=attrs.validators.ge(1))
    """Updates from one move to the next; the paper's tau."""
    name: str = "reference"
    """Of the `[frozen.<name>]` table."""
    _held: _Held = attrs.field(factory=_Held, init=False, eq=False, repr=False)

    def before_training(self, engine: Engine, context: Context) -> None:
        """Takes hold of the reference; one that a checkpoint held is put into it."""
        restored, self._held.reference = self._held.reference, self._weights(context.frozen[self.name])
        self._held.engine = engine
        with torch.no_grad():
            for name, weight in restored.items():
                self._held.reference[name].copy_(weight)

    def after_update(self, report: StepReport, context: Context) -> None:  # noqa: ARG002
        """Collective under ZeRO-3 when it moves."""
        if report.step % self.every_steps:
            return
        assert self._held.engine is not None
        with torch.no_grad():
            for name, weight in self._held.engine.weights():
                reference = self._held.reference.get(name)
                if reference is None or reference.shape != weight.shape:
                    raise ConfigError(f"hooks: frozen.{self.name} can't follow the policy: it has no such {name}")
                reference.lerp_(weight.to(reference.device, reference.dtype), self.share)

    def state(self) -> Mapping[str, Any]:
        """The reference's weights."""
        return dict(self._held.reference)

    def restore(self, state: Mapping[str, Any]) -> None:
        """They are put into the reference before the first step."""
        self._held.reference = dict(state)

    def _weights(self, model: Any) -> dict[str, Tensor]:
        if not isinstance(model, ScoringModel) or isinstance(model, PrecomputedModel):
            raise ConfigError(
                f"hooks: frozen.{self.name} can't move: it is the policy with its adapter off, or precomputed; give it "
                "a dtype of its own, or leave out precomputed, so that it is a copy"
            )
        return {name: parameter.detach() for name, parameter in model.lm.named_parameters()}
