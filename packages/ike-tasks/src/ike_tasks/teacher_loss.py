"""A token loss that compares the student's distribution with a teacher's.

N scored tokens, C tokens of a chunk, V vocabulary, O outcomes: V, or the teacher's k most likely ids and all others as
one.
"""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.errors import ConfigError
from ike_tasks import logits as chunks
from ike_tasks.divergences import Divergence, ForwardKL
from ike_tasks.logits import LogitSource
from ike_tasks.scoring import prepared
from ike_tasks.token_loss import ScoredTokens


def teacher_logits(teacher: nn.Module, batch: Batch) -> LogitSource:
    """What a frozen model says of the batch's supervised tokens, for `TeacherLoss`.

    One forward without gradient; the logits themselves are made chunk by chunk, beside the student's.
    """
    return prepared(teacher).logit_source(batch)


@attrs.frozen(kw_only=True)
class TeacherLoss:
    """D(teacher, student) at each token, times temperature^2. See `ike_tasks.token_loss.TokenLoss`."""

    teacher: LogitSource
    divergence: Divergence = attrs.field(factory=ForwardKL)
    temperature: float = 1.0
    """Both models' logits are divided by it; the loss is multiplied by its square, so that its gradient keeps its size
    (Hinton et al. 2015, section 2, arXiv:1503.02531)."""
    top_k: int = 0
    """Compares this many ids, the teacher's most likely ones, and the rest as one outcome; 0: every id."""

    @property
    def chunk(self) -> int:
        """Several [C, V] are held at a time."""
        return chunks.CHUNK // 4

    @property
    def names(self) -> Sequence[str]:
        """Nothing beside the loss."""
        return ()

    def __call__(
        self, logits_CV: Tensor, tokens: ScoredTokens, *, learns: bool
    ) -> tuple[Sequence[Tensor], Tensor | None]:
        """The loss alone."""
        student_CV = _log_softmax_(logits_CV.div_(self.temperature))
        teacher_CV = self._read(tokens.at, like=student_CV)
        if 0 < self.top_k < teacher_CV.shape[1]:
            ids_Ck = teacher_CV.topk(self.top_k).indices
            student: _AllOutcomes | _TopOutcomes = _TopOutcomes.of(student_CV, ids_Ck)
            teacher_CO = _TopOutcomes.of(teacher_CV, ids_Ck).logp
        else:
            student, teacher_CO = _AllOutcomes(student_CV), teacher_CV
        value_C, slope_CO = self.divergence(teacher_CO, student.logp)
        scale = self.temperature**2
        if not learns:
            return [value_C * scale], None
        # logits were divided by the temperature, and the loss has its square
        return [value_C * scale], student.gradient(slope_CO.mul_(tokens.weights[:, None] * self.temperature))

    def _read(self, at: slice, like: Tensor) -> Tensor:
        logits_CV = self.teacher(at)
        if logits_CV.shape[1] != like.shape[1]:
            raise ConfigError(
                f"the teacher scores {logits_CV.shape[1]} ids and the student {like.shape[1]}; distillation compares "
                "them id by id, so both need the same tokenizer and heads of the same size"
            )
        return _log_softmax_(logits_CV.to(like.dtype).div_(self.temperature))


@attrs.frozen
class _AllOutcomes:
    """Every id is an outcome."""

    logp: Tensor
    """[C, V]"""

    def gradient(self, slope_CO: Tensor) -> Tensor:
        """With respect to the logits.  Overwrites both."""
        sum_C1 = slope_CO.sum(1, keepdim=True)
        return slope_CO.sub_(self.logp.exp_().mul_(sum_C1))


@attrs.frozen
class _TopOutcomes:
    """Some ids, and all others as one, last."""

    logp: Tensor
    """[C, k + 1]"""
    ids: Tensor
    """[C, k]"""
    others: Tensor
    """[C, V]: log-probabilities, -inf at the ids."""

    @classmethod
    def of(cls, logp_CV: Tensor, ids_Ck: Tensor) -> "_TopOutcomes":
        """Overwrites the log-probabilities. What is left is summed itself: 1 - sum(p) would lose it to rounding."""
        top_Ck = logp_CV.gather(1, ids_Ck)
        others_CV = logp_CV.scatter_(1, ids_Ck, -torch.inf)
        return cls(torch.cat([top_Ck, others_CV.logsumexp(1, keepdim=True)], 1), ids_Ck, others_CV)

    def gradient(self, slope_CO: Tensor) -> Tensor:
        """With respect to all logits: an id among the others has its share of their slope.  Overwrites."""
        slope_CO = slope_CO - self.logp.exp() * slope_CO.sum(1, keepdim=True)
        shares_CV = self.others.sub_(self.logp[:, -1:]).exp_().mul_(slope_CO[:, -1:])
        return shares_CV.scatter_(1, self.ids, slope_CO[:, :-1])


def _log_softmax_(logits_CV: Tensor) -> Tensor:
    return logits_CV.sub_(logits_CV.logsumexp(1, keepdim=True))
