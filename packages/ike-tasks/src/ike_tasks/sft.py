"""SFT: cross-entropy on the tokens that are learned."""

import attrs
from torch import nn

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.mean import Mean
from ike_core.step_output import StepOutput
from ike_tasks.logprobs import weighted_logprob_sum


@attrs.frozen
class SFT:
    """Mean cross-entropy over supervised tokens, each with its weight."""

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:  # noqa: ARG002
        return StepOutput(Mean(-weighted_logprob_sum(model, batch), batch.weights["tokens"]))
