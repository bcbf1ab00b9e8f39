"""Each loss over pairs against its paper's formula, written out again here on plain numbers in float64.

c and r are the log-ratios log pi - log pi_ref of the chosen and the rejected answer, b is beta, m a margin. The pair of
the cases has log-probabilities -10 and -14, and -12 and -13 of the reference: c = 2, r = -1, c - r = 3.
"""

import math
from collections.abc import Callable

import pytest
import torch

from ike_tasks import pair_losses
from ike_tasks.reference_free import log_odds

EPSILON, TAU, SHIFT = 0.1, 0.05, 0.3


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def exo(h: float) -> float:
    """KL(q || p) = sum q log q / p over the two answers, q = (sigmoid(h), sigmoid(-h)), p = (1 - e, e)."""
    better = sigmoid(h) * (log_sigmoid(h) - math.log(1 - EPSILON))
    return better + sigmoid(-h) * (log_sigmoid(-h) - math.log(EPSILON))


def discopop(h: float) -> float:
    share = sigmoid(h / TAU)
    exponential = math.exp(-h) if h > -700 else 0.0  # below, the share of 1e-6000 has long made it nothing
    return (1 - share) * -log_sigmoid(h) + (share * exponential if share > 0 else 0.0)


def robust(h: float) -> float:
    return (-(1 - EPSILON) * log_sigmoid(h) + EPSILON * log_sigmoid(-h)) / (1 - 2 * EPSILON)


Formula = Callable[[float, float, float, float], float]
FORMULAS: dict[str, tuple[Formula, dict[str, float]]] = {
    "sigmoid": (lambda c, r, b, m: -log_sigmoid(b * (c - r) - m), {}),
    "hinge": (lambda c, r, b, m: max(0.0, 1 - (b * (c - r) - m)), {}),
    "ipo": (lambda c, r, b, m: (c - r - m - 1 / (2 * b)) ** 2, {}),
    "robust": (lambda c, r, b, m: robust(b * (c - r) - m), {"label_smoothing": EPSILON}),
    "conservative": (
        lambda c, r, b, m: -(1 - EPSILON) * log_sigmoid(b * (c - r) - m) - EPSILON * log_sigmoid(m - b * (c - r)),
        {"label_smoothing": EPSILON},
    ),
    "exo_pair": (lambda c, r, b, m: exo(b * (c - r) - m), {"label_smoothing": EPSILON}),
    "discopop": (lambda c, r, b, m: discopop(b * (c - r) - m), {"tau": TAU}),
    "apo_zero": (lambda c, r, b, m: 1 - sigmoid(b * c - m) + sigmoid(b * r), {}),
    "apo_down": (lambda c, r, b, m: sigmoid(b * c) + 1 - sigmoid(b * (c - r) - m), {}),
    "nca_pair": (
        lambda c, r, b, m: -log_sigmoid(b * c - m) - 0.5 * log_sigmoid(m - b * c) - 0.5 * log_sigmoid(-b * r),
        {},
    ),
    "sppo_hard": (lambda c, r, b, m: (c - m - 1 / (2 * b)) ** 2 + (r + 1 / (2 * b)) ** 2, {}),
    "bco_pair": (
        lambda c, r, b, m: -log_sigmoid(b * c - m - SHIFT) - log_sigmoid(-(b * r - SHIFT)),
        {"shift": SHIFT},
    ),
}
DIVIDES_BY_BETA = {"ipo", "sppo_hard"}


def both(name: str, c: float, r: float, *, beta: float, margin: float = 0.0) -> tuple[torch.Tensor, float]:
    """Ours and the formula's."""
    formula, settings = FORMULAS[name]
    pair = [torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (c, r)]
    ours = getattr(pair_losses, name)(*pair, beta=beta, margin=margin, **settings)
    ours.sum().backward()
    return torch.stack([ours.detach()[0], *(value.grad[0] for value in pair)]), formula(c, r, beta, margin)


def slopes(name: str, c: float, r: float, *, beta: float, margin: float = 0.0, step: float = 1e-6) -> list[float]:
    """d loss / d c and d loss / d r of the formula, by finite differences."""
    formula, _ = FORMULAS[name]
    return [
        (formula(c + dc, r + dr, beta, margin) - formula(c - dc, r - dr, beta, margin)) / (2 * step)
        for dc, dr in ((step, 0.0), (0.0, step))
    ]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_loss_and_its_slopes_are_its_paper_s(name) -> None:
    for c, r, beta, margin in [(2, -1, 0.1, 0), (2, -1, 0.1, 0.5), (-3, 4, 0.5, 0.25), (0.2, 0.1, 2.0, 0)]:
        ours, wanted = both(name, c, r, beta=beta, margin=margin)
        assert ours[0].item() == pytest.approx(wanted, rel=1e-12, abs=1e-12)
        assert ours[1:].tolist() == pytest.approx(slopes(name, c, r, beta=beta, margin=margin), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize(("c", "r"), [(0, 0), (5, 5), (500, -500), (-500, 500), (1e3, 0), (0, -1e3), (-1e3, -1e3)])
def test_a_loss_is_finite_and_right_at_the_edges(name, c, r) -> None:
    """Policy equal to reference, identical answers, margins of 1e3 either way; without a scale (beta 0) too."""
    for beta in (0.1, 1.0) if name in DIVIDES_BY_BETA else (0.0, 0.1, 1.0):
        ours, wanted = both(name, c, r, beta=beta)
        assert torch.isfinite(ours).all(), ours
        assert ours[0].item() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_losses_at_numbers_worked_out_by_hand() -> None:
    """b (c - r) = 0.3: log(1 + e^-0.3) = 0.554355, 1 - 0.3 = 0.7, (3 - 5)^2 = 4. Nothing gained: log 2."""
    chosen, rejected = torch.tensor([2.0], dtype=torch.float64), torch.tensor([-1.0], dtype=torch.float64)
    assert pair_losses.sigmoid(chosen, rejected, beta=0.1).item() == pytest.approx(0.554355, abs=5e-7)
    assert pair_losses.hinge(chosen, rejected, beta=0.1).item() == pytest.approx(0.7)
    assert pair_losses.ipo(chosen, rejected, beta=0.1).item() == pytest.approx(4.0)
    assert pair_losses.sigmoid(chosen, chosen, beta=0.1).item() == pytest.approx(math.log(2), abs=1e-15)


def test_a_margin_is_taken_off_what_was_gained() -> None:
    """Rewards 1 and 0 with a margin of 0.5: -log sigmoid(1 - 0 - 0.5) = 0.474077; pairs (1, 0), (0, 1), (2, 2)."""
    one, none = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    assert pair_losses.sigmoid(one, none, beta=1.0, margin=0.5).item() == pytest.approx(0.474077, abs=5e-7)
    chosen, rejected = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 1.0, 2.0])
    losses = pair_losses.sigmoid(chosen, rejected, beta=1.0)
    assert losses.tolist() == pytest.approx([0.313262, 1.313262, 0.693147], abs=5e-7)


@pytest.mark.parametrize("name", FORMULAS)
def test_half_precision_comes_in_and_float32_goes_out(name) -> None:
    """What is computed of bf16 numbers is what float32 computes of the same numbers, gradients included."""
    settings = FORMULAS[name][1]
    half = [torch.tensor(values, dtype=torch.bfloat16, requires_grad=True) for values in ([1.7, 300.0], [-0.6, 2.0])]
    single = [values.detach().float().requires_grad_() for values in half]
    losses = [getattr(pair_losses, name)(*pair, beta=0.1, margin=0.0, **settings) for pair in (half, single)]
    assert losses[0].dtype == torch.float32
    assert torch.equal(losses[0], losses[1])
    for loss in losses:
        loss.sum().backward()
    for one, other in zip(half, single, strict=True):
        assert torch.equal(one.grad, other.grad.bfloat16())


def test_cross_entropy_of_an_answer_is_averaged_over_its_tokens() -> None:
    assert pair_losses.sft(torch.tensor([-6.0]), torch.tensor([3.0])).tolist() == [2.0]
    assert pair_losses.sft(torch.tensor([0.0]), torch.tensor([0.0])).tolist() == [0.0]


@pytest.mark.parametrize("p", [1e-9, 0.2, 0.5, 0.9, 1 - 1e-9])
def test_log_odds_are_those_of_the_probability(p) -> None:
    odds = log_odds(torch.tensor(math.log(p), dtype=torch.float64)).item()
    assert odds == pytest.approx(math.log(p / (1 - p)), rel=1e-6)


def test_log_odds_of_certainty_are_finite_and_so_is_their_slope() -> None:
    certain = torch.zeros(1, requires_grad=True)
    log_odds(certain).sum().backward()
    assert torch.isfinite(log_odds(certain)).all()
    assert torch.isfinite(certain.grad).all()
