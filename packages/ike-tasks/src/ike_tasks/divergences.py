"""How far a student's distribution is from a teacher's: the pure formulas.

C tokens, O outcomes. Each takes log-probabilities, teacher's first, both [C, O], and returns the divergence D [C] and
its slope [C, O], q * dD/dq over the student's probabilities q: the gradient with respect to logits whose softmax q is
is then slope - q * sum(slope).
"""

import math
from typing import Protocol

import attrs
import torch
from torch import Tensor


class Divergence(Protocol):
    """D(teacher, student), at least 0, and 0 where they agree."""

    def __call__(self, teacher_CO: Tensor, student_CO: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities -> D [C], q * dD/dq [C, O]."""
        ...


@attrs.frozen
class ForwardKL:
    """sum p (log p - log q): the student covers what the teacher does.  Hinton et al. 2015, arXiv:1503.02531"""

    def __call__(self, teacher_CO: Tensor, student_CO: Tensor) -> tuple[Tensor, Tensor]:
        """See `Divergence`."""
        p_CO = teacher_CO.exp()
        return (p_CO * (teacher_CO - student_CO)).sum(1), p_CO.neg_()


@attrs.frozen
class ReverseKL:
    """sum q (log q - log p): the student stays where the teacher is.  Gu et al. 2023 (MiniLLM), arXiv:2306.08543"""

    def __call__(self, teacher_CO: Tensor, student_CO: Tensor) -> tuple[Tensor, Tensor]:
        """See `Divergence`."""
        q_CO = student_CO.exp()
        terms_CO = (student_CO - teacher_CO).mul_(q_CO)
        return terms_CO.sum(1), terms_CO.add_(q_CO)


@attrs.frozen
class JensenShannon:
    """beta KL(p, m) + (1 - beta) KL(q, m) with m = beta p + (1 - beta) q.  Agarwal et al. 2023 (GKD), arXiv:2306.13649

    As beta goes to 0 it is beta times the forward KL, as it goes to 1 it is 1 - beta times the reverse one.
    """

    beta: float = attrs.field(default=0.5, validator=[attrs.validators.gt(0), attrs.validators.lt(1)])
    """The teacher's share of the mixture, in (0, 1)."""

    def __call__(self, teacher_CO: Tensor, student_CO: Tensor) -> tuple[Tensor, Tensor]:
        """See `Divergence`."""
        mixed_CO = torch.logaddexp(teacher_CO + math.log(self.beta), student_CO + math.log(1 - self.beta))
        from_teacher_C = (teacher_CO.exp() * (teacher_CO - mixed_CO)).sum(1)
        terms_CO = mixed_CO.neg_().add_(student_CO).mul_(student_CO.exp())
        value_C = self.beta * from_teacher_C + (1 - self.beta) * terms_CO.sum(1)
        return value_C, terms_CO.mul_(1 - self.beta)
