"""Objectives on packed rows, lean log-probabilities, generation."""

from ike_tasks.generate import Generate
from ike_tasks.logprobs import target_logprobs, weighted_logprob_sum
from ike_tasks.packing import Packed
from ike_tasks.padding import PaddedRows
from ike_tasks.scoring import ScoringModel
from ike_tasks.sft import SFT

__all__ = ["SFT", "Generate", "Packed", "PaddedRows", "ScoringModel", "target_logprobs", "weighted_logprob_sum"]
