"""What becomes of an example that is too long, and of one with nothing left to learn."""

import math

import pytest

from ike_core import Comparison, Example, LabelledExample, Segment, Skip, preference_pair
from ike_data.lengths import fit


def learned(*tokens: int) -> Example:
    return Example.of(tokens, [1.0] * len(tokens))


LONG = Example((Segment.prompt([1, 2, 3]), Segment.answer([4, 5])))


@pytest.mark.parametrize(
    ("too_long", "tokens", "weights"),
    [("truncate_left", [2, 3, 4, 5], [0, 0, 1, 1]), ("truncate_right", [1, 2, 3, 4], [0, 0, 0, 1])],
)
def test_a_sequence_is_cut_at_the_end_that_is_said(too_long, tokens, weights) -> None:
    cut, unused = fit(LONG, max_tokens=4, too_long=too_long)
    assert (list(cut.trunk.tokens), list(cut.trunk.weights), unused) == (tokens, weights, 1)


def test_a_sequence_that_fits_is_left_alone() -> None:
    for most in (5, 0):
        assert fit(LONG, max_tokens=most, too_long="skip") == (LONG, 0)


def test_a_sequence_that_does_not_fit_is_skipped_whole() -> None:
    assert fit(LONG, max_tokens=4, too_long="skip") == (Skip("too long: 5 tokens, and max_tokens = 4"), 5)


def test_a_cut_that_leaves_nothing_to_learn_is_a_skip() -> None:
    reason = "no supervised token left: 5 tokens were cut to max_tokens = 3 (truncate_right)"
    assert fit(LONG, max_tokens=3, too_long="truncate_right") == (Skip(reason), 5)


@pytest.mark.parametrize(
    "example",
    [
        Example.of([1, 2], [0, 0]),
        Example.of([1], [1]),  # nothing is read before it, so nothing predicts it
        Example.of([1, 2], [0, 1], weight=0.0),
        Comparison(Segment.prompt([1]), (Segment.answer([2]), Segment.answer([]))),
        LabelledExample(prompt=Segment.prompt([1]), answer=Segment.prompt([2]), desirable=True),
    ],
)
def test_an_example_that_teaches_nothing_is_a_skip(example) -> None:
    assert fit(example, max_tokens=0, too_long="skip") == (Skip("no supervised token"), len(example))


def test_a_tree_is_not_cut() -> None:
    pair = preference_pair([1, 2], [3, 4], [5])
    assert fit(pair, max_tokens=5, too_long="truncate_left") == (pair, 0)
    reason = "too long: a Comparison of 5 tokens can't be cut to max_tokens = 4"
    assert fit(pair, max_tokens=4, too_long="truncate_left") == (Skip(reason), 5)


@pytest.mark.parametrize(
    "example",
    [
        Example.of([1, 2], [0, math.nan]),
        Example.of([1, 2], [0, 1], weight=math.inf),
        preference_pair([1], [2], [3], margin=math.nan),
        Comparison(Segment.prompt([1]), (Segment.answer([2], score=math.inf), Segment.answer([3], score=0.0))),
    ],
)
def test_a_number_that_is_not_finite_is_a_skip(example) -> None:
    reason = "a weight, score or margin that is not finite"
    assert fit(example, max_tokens=0, too_long="skip") == (Skip(reason), len(example))


@pytest.mark.parametrize(
    "example",
    [
        Example.of([1, 2, 3], [0, 1, -0.5]),
        Example.of([1, 2], [0, 1], weight=-0.5),
        Comparison(Segment.prompt([1]), (Segment.answer([2], weight=-0.5), Segment.answer([3]))),
    ],
)
def test_a_negative_weight_is_a_skip_since_its_sign_would_cancel_in_the_division(example) -> None:
    reason = "a negative weight: -0.5; weights are 0 or more"
    assert fit(example, max_tokens=0, too_long="skip") == (Skip(reason), len(example))


@pytest.mark.parametrize("too_long", ["skip", "truncate_left", "truncate_right"])
def test_a_pair_whose_prompt_leaves_no_room_is_a_skip_and_never_a_pair_of_nothing(too_long) -> None:
    """Prompt of 8 tokens, answers of 4 and 2, max_tokens 8: what would be left is log 2 whatever the model says."""
    item, unused = fit(preference_pair(range(1, 9), [9, 10, 11, 12], [13, 14]), max_tokens=8, too_long=too_long)
    assert isinstance(item, Skip)
    assert "14 tokens" in item.reason
    assert unused == 14
