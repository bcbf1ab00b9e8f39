"""The words of pairwise objectives: the two answers' log-probabilities, and what a loss over them returns.

E pairs of the micro-batch, each an example; column 0 is the chosen answer's, column 1 the rejected one's.
"""

from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.errors import DataError
from ike_core.mean import Mean
from ike_core.step_output import StepOutput
from ike_tasks.paths import path_lengths, path_logprobs


def pair_logprobs(model: nn.Module, batch: Batch) -> Tensor:
    """log p(answer | prompt) of chosen and rejected, [E, 2], float32 (float64 of a float64 model).

    The prompt is computed once. `model` is the policy, or `context.frozen["reference"]`. DataError where the batch
    holds anything but pairs.
    """
    refuse_others(batch)
    return path_logprobs(model, batch).view(-1, 2)


def pair_lengths(batch: Batch) -> Tensor:
    """Supervised tokens of chosen and rejected, each with its own weight, [E, 2], float64."""
    return path_lengths(batch).view(-1, 2)


def pair_mean(values_E: Tensor, batch: Batch) -> Mean:
    """The mean over pairs, each with its row's weight: a loss, or a metric."""
    return Mean((values_E * batch["row_weights"].to(values_E.dtype)).sum(), batch.weights["pairs"], per="pairs")


def pair_output(losses_E: Tensor, rewards_E2: Tensor, batch: Batch) -> StepOutput:
    """The loss over pairs, and what is known of any: accuracy, margin and the two rewards.

    A pair counts as right where the chosen answer's reward is above the other's: a tie does not.
    """
    values = reward_metrics(rewards_E2)
    return StepOutput(pair_mean(losses_E, batch), {name: pair_mean(value_E, batch) for name, value_E in values.items()})


def reward_metrics(rewards_E2: Tensor) -> dict[str, Tensor]:
    """What is known of any pairs' rewards, [E] each."""
    chosen_E, rejected_E = rewards_E2.detach().unbind(1)
    return {
        "accuracy": (chosen_E > rejected_E).to(chosen_E.dtype),
        "margin": chosen_E - rejected_E,
        "rewards/chosen": chosen_E,
        "rewards/rejected": rejected_E,
    }


def logp_metrics(logp_E2: Tensor) -> dict[str, Tensor]:
    """Log-probabilities of the answers, [E] each."""
    chosen_E, rejected_E = logp_E2.detach().unbind(1)
    return {"logps/chosen": chosen_E, "logps/rejected": rejected_E}


def refuse_others(batch: Batch) -> None:
    """DataError where an example is no pair; by shapes alone, so that nothing waits for the device."""
    examples, paths = batch["row_weights"].numel(), batch["ends"].numel()
    if paths != 2 * examples:
        raise DataError(
            f"{examples} examples with {paths} answers are no pairs: each has a chosen and a rejected answer; let "
            'data.train.processor be { uses = "ike_data:PreferenceProcessor" }, and give rows of two answers'
        )
