"""Objectives that couple the rows of a step, against their formulas on plain numbers; what they remember; widening.

E rows; scores are given as a model and its reference would say them.
"""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from ike_core.context import Context
from ike_core.errors import DataError
from ike_core.examples import Comparison, Example, LabelledExample, Segment, preference_pair
from ike_core.interfaces import Stateful, StepObjective
from ike_core.step_output import StepOutput
from ike_tasks import BCO, KTO, CoupledDPO
from ike_tasks.transport_losses import aot, aot_unpaired

STEP = Context(step=3, steps=9)
LATER = Context(step=4, steps=9, training=False)


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def row(prompt: Sequence[int], answer: Sequence[int], *, desirable: bool, weight: float = 1.0) -> LabelledExample:
    return LabelledExample(Segment.prompt(prompt), Segment.answer(answer), desirable, weight=weight)


def loss_of(output: StepOutput) -> float:
    ((coefficient, mean),) = output.terms
    return float(coefficient * mean.total.detach() / mean.weight)


def test_aot_sets_the_sorted_beside_the_sorted() -> None:
    """Policy gaps 3, -1, 2 and the reference's 1, 0.5, 0: sorted -1, 2, 3 and 0, 0.5, 1."""
    policy, reference = numbers([3.0, -1.0, 2.0]), numbers([1.0, 0.5, 0.0])
    gaps = [-1.0 - 0.0, 2.0 - 0.5, 3.0 - 1.0]
    wanted = -sum(0.9 * log_sigmoid(0.1 * gap) + 0.1 * log_sigmoid(-0.1 * gap) for gap in gaps) / 3
    assert aot(policy, reference, beta=0.1, label_smoothing=0.1).item() == pytest.approx(wanted, abs=1e-12)
    chosen, rejected = numbers([3.0, -1.0, 2.0]), numbers([1.0, 0.5, 0.0])
    assert aot_unpaired(chosen, rejected, beta=0.1, label_smoothing=0.1).item() == pytest.approx(wanted, abs=1e-12)
    assert torch.autograd.gradcheck(lambda *pair: aot(*pair, beta=0.7), (policy, reference))


def test_a_row_of_weight_two_is_the_row_twice() -> None:
    values, others, weights = [3.0, -1.0, 2.0], [1.0, 0.5, 4.0], [1, 2, 3]
    twice = [[v for v, n in zip(side, weights, strict=True) for _ in range(n)] for side in (values, others)]
    weighted = aot_unpaired(numbers(values), numbers(others), beta=1.0, weights=torch.tensor(weights).double())
    assert weighted.item() == pytest.approx(aot_unpaired(*map(numbers, twice), beta=1.0).item(), abs=1e-12)


def six(policy: Sequence[Sequence[float]], reference: Sequence[Sequence[float]]) -> Tensor:
    """[E, 6]: as its scores are, of answers of one token."""
    columns = [torch.tensor(values, dtype=torch.float64) for values in (policy, reference)]
    return torch.cat([*columns, torch.ones(len(policy), 2, dtype=torch.float64)], 1).requires_grad_()


def test_bco_pair_is_shifted_by_the_mean_reward_of_all_steps_so_far() -> None:
    """b = 1. Rewards (1, -1) and (3, 0): means 2 and -0.5, shift 0.75. Then (0, 0): means 4/3 and -1/3, shift 0.5."""
    objective = CoupledDPO(beta=1.0, loss="bco_pair")
    pairs = [preference_pair([5], [6], [7])] * 2
    first = objective.couple(six([(1, -1), (3, 0)], [(0, 0), (0, 0)]), pairs, STEP)
    wanted = -(log_sigmoid(1 - 0.75) + log_sigmoid(0.75 + 1) + log_sigmoid(3 - 0.75) + log_sigmoid(0.75 - 0)) / 2
    assert loss_of(first) == pytest.approx(wanted, abs=1e-12)
    for _ in range(2):  # an evaluation goes by what was learned from, and adds nothing to it
        looked = objective.couple(six([(9, 9)], [(0, 0)]), pairs[:1], LATER)
        assert loss_of(looked) == pytest.approx(-log_sigmoid(9 - 0.75) - log_sigmoid(0.75 - 9), abs=1e-12)
    second = objective.couple(six([(0, 0)], [(0, 0)]), pairs[:1], STEP)
    assert loss_of(second) == pytest.approx(-log_sigmoid(0 - 0.5) - log_sigmoid(0.5 - 0), abs=1e-12)


@pytest.mark.parametrize("objective", [CoupledDPO(beta=1.0, loss="bco_pair"), BCO(beta=1.0)])
def test_what_is_remembered_survives_to_the_bit(objective) -> None:
    rows = objective.widen([preference_pair([5], [6], [7])] * 3)
    draw = torch.Generator().manual_seed(0)

    def scores() -> Tensor:
        return torch.randn(len(rows), 6, generator=draw, dtype=torch.float64, requires_grad=True)

    assert isinstance(objective, StepObjective)
    assert isinstance(objective, Stateful)
    for _ in range(3):
        objective.couple(scores(), rows, STEP)
    another = type(objective)(**{"beta": 1.0} | ({"loss": "bco_pair"} if len(rows) == 3 else {}))
    another.restore({name: value.clone() for name, value in objective.state().items()})
    again = scores()
    assert loss_of(another.couple(again, rows, STEP)) == loss_of(objective.couple(again, rows, STEP))


def test_losses_of_a_pair_and_of_a_step_mix() -> None:
    """h = 0.3 of one pair: its sigmoid loss and aot's are both 0.554355."""
    objective = CoupledDPO(beta=0.1, loss={"sigmoid": 0.8, "aot": 0.5})
    output = objective.couple(six([(-10, -14)], [(-12, -13)]), [preference_pair([5], [6], [7])], STEP)
    assert loss_of(output) == pytest.approx(1.3 * 0.554355, abs=1e-6)
    assert float(output.metrics["rewards/chosen"].value) == pytest.approx(0.2)


def test_a_step_s_weights_and_margins_count() -> None:
    pairs = [preference_pair([5], [6], [7], weight=3.0, margin=0.5), preference_pair([5], [6], [7])]
    objective = CoupledDPO(beta=1.0, loss="sigmoid")
    output = objective.couple(six([(1, 0), (2, 2)], [(0, 0), (0, 0)]), pairs, STEP)
    ((_, mean),) = output.terms
    assert (mean.per, mean.weight) == ("pairs", 4.0)
    assert loss_of(output) == pytest.approx((3 * 0.474077 + 0.693147) / 4, abs=5e-7)


def test_kto_reads_every_prompt_with_the_next_answer_too() -> None:
    rows = [row([1, 2], [3], desirable=True), row([4], [5, 6], desirable=False), row([7, 8, 9], [10], desirable=True)]
    *real, first, second, last = KTO().widen(rows)
    assert real == rows
    assert [list(example.prompt.tokens) for example in (first, second, last)] == [[1, 2], [4], [7, 8, 9]]
    assert [list(example.answer.tokens) for example in (first, second, last)] == [[5, 6], [10], [3]]


def test_a_mismatched_row_is_no_longer_than_the_longest_row() -> None:
    long_prompt, long_answer = row(range(10), [11], desirable=True), row([12], range(20, 28), desirable=False)
    *_, first, second = KTO().widen([long_prompt, long_answer])
    assert list(first.prompt.tokens) == [7, 8, 9]  # 3 and 8 are the 11 of the longest
    assert list(first.answer.tokens) == list(range(20, 28))
    assert list(second.prompt.tokens) == [12]


def test_kto_is_its_paper_s() -> None:
    """b = 0.1, log-ratios 4, -2, 1; mismatched 3, -1, 1: z0 = 1. Weights 1, 2, 1; l_D = 1, l_U = 1.5."""
    objective = KTO(beta=0.1, undesirable_weight=1.5)
    rows = objective.widen([row([1], [2], desirable=True), row([3], [4], desirable=False, weight=2.0),
                            row([5], [6], desirable=True)])  # fmt: skip
    scores_EK = torch.tensor([[v, 0.0] for v in (4.0, -2.0, 1.0, 3.0, -1.0, 1.0)], dtype=torch.float64)
    output = objective.couple(scores_EK.requires_grad_(), rows, STEP)
    good, bad, other = 1 - sigmoid(0.1 * (4 - 1)), 1.5 * (1 - sigmoid(0.1 * (1 + 2))), 1 - sigmoid(0.0)
    assert loss_of(output) == pytest.approx((good + 2 * bad + other) / 4, abs=1e-12)
    found = {name: float(mean.total.detach() / mean.weight) for name, mean in output.metrics.items()}
    assert found == pytest.approx({"kl": 1.0, "rewards/desirable": 0.25, "rewards/undesirable": -0.2})
    output.terms[0][1].total.backward()
    assert torch.count_nonzero(scores_EK.grad[3:]) == 0  # nothing is learned through the estimate


def test_an_estimate_below_zero_is_zero_and_one_row_has_none() -> None:
    rows = KTO().widen([row([1], [2], desirable=True), row([3], [4], desirable=False)])
    low = torch.tensor([[1.0, 0], [1.0, 0], [-5.0, 0], [-5.0, 0]], dtype=torch.float64, requires_grad=True)
    assert float(KTO().couple(low, rows, STEP).metrics["kl"].total) == 0.0
    alone = KTO().widen(rows[:1])
    assert float(KTO().couple(low[:2], alone, STEP).metrics["kl"].total) == 0.0


def test_bco_is_a_classifier_of_shifted_rewards() -> None:
    """Rewards 2, 4 of good answers, -1 of a bad one: shift (3 - 1) / 2 = 1."""
    rows = [row([1], [2], desirable=True), row([3], [4], desirable=True), row([5], [6], desirable=False)]
    scores_EK = torch.tensor([[2.0, 0], [4.0, 0], [-1.0, 0]], dtype=torch.float64, requires_grad=True)
    output = BCO(beta=1.0).couple(scores_EK, BCO().widen(rows), STEP)
    wanted = -(log_sigmoid(2 - 1) + log_sigmoid(4 - 1) + log_sigmoid(1 + 1)) / 3
    assert loss_of(output) == pytest.approx(wanted, abs=1e-12)
    only_good = BCO(beta=1.0).couple(scores_EK[:2], rows[:2], STEP)
    assert loss_of(only_good) == pytest.approx(-(log_sigmoid(2 - 3) + log_sigmoid(4 - 3)) / 2, abs=1e-12)


def test_pairs_are_taken_apart_with_what_their_answers_share() -> None:
    pair = preference_pair([1, 2], [3, 4], [3, 5], weight=0.5, source="pairs:1", index=7)
    good, bad = BCO().widen([pair])
    assert (list(good.prompt.tokens), list(good.answer.tokens), good.desirable) == ([1, 2], [3, 4], True)
    assert (list(bad.prompt.tokens), list(bad.answer.tokens), bad.desirable) == ([1, 2], [3, 5], False)
    assert list(bad.answer.weights) == [1, 1]
    assert {(part.weight, part.source, part.index) for part in (good, bad)} == {(0.5, "pairs:1", 7)}


@pytest.mark.parametrize(
    "other", [Example((Segment.answer([1]),), source="a:1"), Comparison(Segment.prompt([1]), (), source="a:1")]
)
def test_what_is_neither_is_refused_by_its_source(other) -> None:
    with pytest.raises(DataError, match="a:1 is neither an answer with a label nor a pair"):
        KTO().widen([other])
