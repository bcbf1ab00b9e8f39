"""Focal loss over tokens: what the model already knows weighs less.  Lin et al. 2017, arXiv:1708.02002"""

import attrs

from ike_core import Mean
from ike_tasks import target_logprobs


@attrs.frozen
class Focal:
    gamma: float = 2.0

    def __call__(self, model, batch, context):
        logp_N = target_logprobs(model, batch)
        loss_N = -((1 - logp_N.exp()) ** self.gamma) * logp_N
        return Mean((loss_N * batch["target_weights"]).sum(), batch.weights["tokens"])
