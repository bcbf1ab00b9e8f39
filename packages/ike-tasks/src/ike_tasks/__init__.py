"""Objectives on packed rows, lean log-probabilities, generation."""

from ike_tasks.bco import BCO
from ike_tasks.coupled_dpo import CoupledDPO
from ike_tasks.cross_entropy import CrossEntropy
from ike_tasks.distillation import Distillation
from ike_tasks.divergences import ForwardKL, JensenShannon, ReverseKL
from ike_tasks.dpo import DPO
from ike_tasks.generate import Generate
from ike_tasks.kto import KTO
from ike_tasks.logprobs import logprobs_with_collisions, target_logprobs, token_loss_sum, weighted_logprob_sum
from ike_tasks.mixed_loss import MixedLoss
from ike_tasks.moving_reference import MovingReference
from ike_tasks.packing import Packed
from ike_tasks.padding import PaddedRows
from ike_tasks.pairs import pair_lengths, pair_logprobs, pair_mean, pair_output
from ike_tasks.paths import path_lengths, path_logprobs, path_sums
from ike_tasks.reference_free import CPO, ORPO, SimPO
from ike_tasks.scoring import ScoringModel
from ike_tasks.sft import SFT
from ike_tasks.teacher_loss import TeacherLoss, teacher_logits

__all__ = [
    "BCO",
    "CPO",
    "DPO",
    "KTO",
    "ORPO",
    "SFT",
    "CoupledDPO",
    "CrossEntropy",
    "Distillation",
    "ForwardKL",
    "Generate",
    "JensenShannon",
    "MixedLoss",
    "MovingReference",
    "Packed",
    "PaddedRows",
    "ReverseKL",
    "ScoringModel",
    "SimPO",
    "TeacherLoss",
    "logprobs_with_collisions",
    "pair_lengths",
    "pair_logprobs",
    "pair_mean",
    "pair_output",
    "path_lengths",
    "path_logprobs",
    "path_sums",
    "target_logprobs",
    "teacher_logits",
    "token_loss_sum",
    "weighted_logprob_sum",
]
