"""What an objective must not return is refused with its name and what to return; numbers and tensors are told apart."""

import math
from typing import Any

import pytest
import torch

from ike_core import ConfigError, Mean, StepOutput
from ike_core.outputs import as_output
from ike_core.step_function import StepFunction


class Focal:
    """Stands for an objective."""


def learned(value: float = 1.0) -> torch.Tensor:
    return torch.tensor(value, requires_grad=True)


RIGHT = Mean(learned(), 2.0)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "Focal returned None; an objective returns a StepOutput or a Mean"),
        (learned(), "Focal returned a Tensor; an objective returns"),
        (StepOutput([]), "Focal returned a StepOutput without a term"),
        (StepOutput(learned()), "Focal returned a StepOutput without a term"),  # type: ignore[arg-type]
        (StepOutput([RIGHT]), "a Mean among the terms of its loss; each is a pair"),  # type: ignore[list-item]
        (Mean(torch.ones(3, requires_grad=True), 2.0), r"a loss with a total of shape \(3,\); sum it"),
        (Mean(learned(), torch.ones(2)), r"a loss with a weight of shape \(2,\)"),
        (Mean(learned(), [1.0]), "a loss with a weight that is a list"),
        (Mean(1.5, 2.0), "Focal returned a loss that nothing can be learned from"),
        (Mean(learned().detach(), 2.0), "Focal returned a loss that nothing can be learned from"),
        (StepOutput(RIGHT, {"hits": torch.tensor(1.0)}), "the metric 'hits' as a Tensor; a metric is a Mean"),  # type: ignore[dict-item]
        (StepOutput(RIGHT, {"hits": Mean(torch.ones(2), 1.0)}), r"the metric 'hits' with a total of shape \(2,\)"),
        (StepOutput(RIGHT, {"loss": Mean(7.0, 1.0)}), "a metric named 'loss', which ike reports itself"),
        (StepOutput(RIGHT, {"step": Mean(7.0, 1.0)}), "a metric named 'step', which ike reports itself"),
        (StepOutput(RIGHT, [RIGHT]), "metrics that are a list"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_and_what_to_return_is_said(returned: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        as_output(returned, Focal(), learns=True)


def test_a_plain_function_is_called_by_its_own_name() -> None:
    def my_step(model: Any, samples: Any) -> Any:
        raise NotImplementedError

    with pytest.raises(ConfigError, match=r"^my_step returned a loss with a total of shape"):
        as_output(Mean(torch.ones(2, requires_grad=True), 1.0), StepFunction(my_step), learns=True)


def test_right_outputs_pass_unchanged() -> None:
    output = StepOutput([(1, RIGHT), (0.5, Mean(learned(), torch.tensor(3.0), "examples"))], {"hits": Mean(1, 2)})
    assert as_output(output, Focal(), learns=True) is output
    assert as_output(RIGHT, Focal(), learns=True).terms == [(1.0, RIGHT)]


def test_an_evaluation_needs_no_gradient_and_a_loss_need_not_be_finite() -> None:
    assert as_output(Mean(1.5, 2.0), Focal(), learns=False).terms[0][1].value == 0.75
    assert as_output(Mean(learned(math.nan), 2.0), Focal(), learns=True)
