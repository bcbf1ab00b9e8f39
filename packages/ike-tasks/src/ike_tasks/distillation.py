"""Distillation: what frozen teachers would have said at every supervised token, not only what the row says."""

from collections.abc import Mapping
from typing import Literal

import attrs
from torch import nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.errors import ConfigError
from ike_core.mean import Mean
from ike_core.step_output import StepOutput
from ike_tasks.cross_entropy import CrossEntropy
from ike_tasks.divergences import Divergence, ForwardKL, JensenShannon, ReverseKL
from ike_tasks.logprobs import token_loss_sum
from ike_tasks.mixed_loss import MixedLoss
from ike_tasks.teacher_loss import TeacherLoss, teacher_logits
from ike_tasks.token_loss import TokenLoss


def _one_teacher() -> Mapping[str, float]:
    return {"teacher": 1.0}


def _weights(_: object, field: "attrs.Attribute[Mapping[str, float]]", teachers: Mapping[str, float]) -> None:
    if not teachers or min(teachers.values()) <= 0:
        raise ValueError(f"{field.name} is {dict(teachers)}; name at least one, each with a weight above 0")


@attrs.frozen(kw_only=True)
class Distillation:
    """The mean over supervised tokens of sum_k weight_k * T^2 * D(teacher_k, student) + sft_weight * cross-entropy.

    Teachers are the models of `[frozen.<name>]`, with the student's vocabulary. Neither theirs nor the student's logits
    exist for more than some hundred tokens.
    """

    teachers: Mapping[str, float] = attrs.field(factory=_one_teacher, validator=_weights)
    """Name of a `[frozen.<name>]` table -> weight of its divergence, above 0. They need not add up to 1."""
    divergence: Literal["forward_kl", "reverse_kl", "jensen_shannon"] = "forward_kl"
    """forward_kl: KL(teacher, student); reverse_kl: KL(student, teacher); jensen_shannon: the generalised one of GKD,
    Agarwal et al. 2023, arXiv:2306.13649."""
    beta: float = attrs.field(default=0.5, validator=[attrs.validators.gt(0), attrs.validators.lt(1)])
    """jensen_shannon's share of the teacher in the mixture, in (0, 1)."""
    temperature: float = attrs.field(default=1.0, validator=attrs.validators.gt(0))
    """What both models' logits are divided by, above 0; the divergence is multiplied by its square."""
    top_k: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Compare this many ids, those that the teacher finds most likely, and the rest as one outcome; 0: every id."""
    sft_weight: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    """Weight of the cross-entropy on what the rows say, at least 0."""

    @property
    def needs_frozen(self) -> tuple[str, ...]:
        """A run without one of the teachers is refused before it starts."""
        return tuple(self.teachers)

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:
        terms: dict[str, tuple[float, TokenLoss]] = {
            f"divergence/{name}": (weight, self._loss(name, batch, context)) for name, weight in self.teachers.items()
        }
        if self.sft_weight:
            terms["cross_entropy"] = (self.sft_weight, CrossEntropy())
        total, parts = token_loss_sum(model, batch, MixedLoss(terms))
        weight = batch.weights["tokens"]
        return StepOutput(Mean(total, weight), {name: Mean(part, weight) for name, part in parts.items()})

    def _loss(self, name: str, batch: Batch, context: Context) -> TeacherLoss:
        if name not in context.frozen:
            there = ", ".join(f"[frozen.{known}]" for known in context.frozen) or "no [frozen] table at all"
            raise ConfigError(f"objective.teachers names {name!r}, and there is {there}; say frozen.{name}.path")
        return TeacherLoss(
            teacher=teacher_logits(context.frozen[name], batch),
            divergence=self._divergence(),
            temperature=self.temperature,
            top_k=self.top_k,
        )

    def _divergence(self) -> Divergence:
        if self.divergence == "jensen_shannon":
            return JensenShannon(self.beta)
        return ForwardKL() if self.divergence == "forward_kl" else ReverseKL()
