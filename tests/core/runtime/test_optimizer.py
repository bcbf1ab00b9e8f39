"""The optimizers compute what their papers say."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from ike_core.interfaces import BuildContext, OptimizerPart
from ike_core.runtime.optimizer import SGD, AdamW

CONTEXT = BuildContext(
    device=torch.device("cpu"), dtype=torch.float64, attention="auto", vocabulary=None, world=None, seed=0
)


def steps(part: OptimizerPart, gradients: list[float], start: float, **group: Any) -> list[float]:
    """The value of one 1 x 1 matrix after each update."""
    weight = nn.Parameter(torch.tensor([[start]], dtype=torch.float64))
    optimizer = part.build([("w", weight)], [{"params": [weight], "name": "", **group}], CONTEXT)
    values = []
    for gradient in gradients:
        weight.grad = torch.tensor([[gradient]], dtype=torch.float64)
        optimizer.step()
        values.append(weight.item())
    return values


def test_adamw_is_adam_with_the_decay_beside_it() -> None:
    lr, first, second, eps, decay = 0.1, 0.8, 0.95, 1e-6, 0.5
    w, m, v, expected = 2.0, 0.0, 0.0, []
    for t, g in enumerate([0.3, -1.2, 0.7], start=1):  # Loshchilov and Hutter 2019, algorithm 2
        m, v = first * m + (1 - first) * g, second * v + (1 - second) * g * g
        mean, square = m / (1 - first**t), v / (1 - second**t)
        w -= lr * (mean / (math.sqrt(square) + eps) + decay * w)
        expected.append(w)
    part = AdamW(betas=(first, second), eps=eps, weight_decay=decay)
    assert steps(part, [0.3, -1.2, 0.7], 2.0, lr=lr) == pytest.approx(expected, rel=1e-12)


def test_sgd_goes_on_with_a_share_of_the_last_update() -> None:
    # v1 = 0.5, v2 = 0.9 * 0.5 - 1 = -0.55; w = 2 - 0.1 * 0.5 = 1.95, then 1.95 + 0.1 * 0.55 = 2.005
    assert steps(SGD(momentum=0.9), [0.5, -1.0], 2.0, lr=0.1) == pytest.approx([1.95, 2.005], rel=1e-12)
    assert steps(SGD(), [0.5, -1.0], 2.0, lr=0.1) == pytest.approx([1.95, 2.05], rel=1e-12)


def test_a_groups_own_decay_wins() -> None:
    # no gradient: only the decay moves the weight, 2 * (1 - 0.1 * 0.25)
    assert steps(AdamW(weight_decay=0.5), [0.0], 2.0, lr=0.1, weight_decay=0.25) == pytest.approx([1.95], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_adamw_is_the_fused_one_in_every_precision(dtype) -> None:
    weight = nn.Parameter(torch.ones(4, 4, dtype=dtype))
    optimizer = AdamW().build([], [{"params": [weight], "lr": 0.1}], CONTEXT)
    assert optimizer.param_groups[0]["fused"]
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert weight[0, 0].item() == pytest.approx(0.9, rel=1e-2)  # the first step of Adam is lr * sign(gradient)


def test_both_are_optimizer_parts() -> None:
    assert isinstance(AdamW(), OptimizerPart)
    assert isinstance(SGD(), OptimizerPart)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: AdamW(betas=(0.9, 1.0)),
        lambda: AdamW(betas=(-0.1, 0.9)),
        lambda: AdamW(eps=-1e-8),
        lambda: AdamW(weight_decay=-0.1),
        lambda: SGD(momentum=1.0),
    ],
)
def test_values_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ValueError):
        wrong()
