"""Objectives on packed rows, lean log-probabilities, generation."""

from ike_tasks.cross_entropy import CrossEntropy
from ike_tasks.distillation import Distillation
from ike_tasks.divergences import ForwardKL, JensenShannon, ReverseKL
from ike_tasks.generate import Generate
from ike_tasks.logprobs import target_logprobs, token_loss_sum, weighted_logprob_sum
from ike_tasks.mixed_loss import MixedLoss
from ike_tasks.packing import Packed
from ike_tasks.padding import PaddedRows
from ike_tasks.scoring import ScoringModel
from ike_tasks.sft import SFT
from ike_tasks.teacher_loss import TeacherLoss, teacher_logits

__all__ = [
    "SFT",
    "CrossEntropy",
    "Distillation",
    "ForwardKL",
    "Generate",
    "JensenShannon",
    "MixedLoss",
    "Packed",
    "PaddedRows",
    "ReverseKL",
    "ScoringModel",
    "TeacherLoss",
    "target_logprobs",
    "teacher_logits",
    "token_loss_sum",
    "weighted_logprob_sum",
]
