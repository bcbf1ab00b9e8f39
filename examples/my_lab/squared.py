"""A pairwise objective of one's own: the gap of the log-ratios is driven to a target, by its square."""

import attrs

from ike_tasks import pair_logprobs, pair_output


@attrs.frozen
class SquaredGap:
    target: float = 5.0
    needs_frozen = ("reference",)

    def __call__(self, model, batch, context):
        policy_E2 = pair_logprobs(model, batch)
        reference_E2 = pair_logprobs(context.frozen["reference"], batch)
        ratios_E2 = policy_E2 - reference_E2
        loss_E = (ratios_E2[:, 0] - ratios_E2[:, 1] - self.target) ** 2
        return pair_output(loss_E, ratios_E2, batch)
