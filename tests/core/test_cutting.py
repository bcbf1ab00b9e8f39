"""However a step is cut, every example is in it once, under the ceilings, alike in number on every rank."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core.cutting import Ceiling, cost, cut
from ike_core.errors import ConfigError

SIZES = st.lists(st.integers(1, 100), min_size=1, max_size=60)


@given(SIZES, st.integers(1, 7), st.integers(100, 400), st.integers(0, 5), st.booleans())
def test_a_cut_holds_every_example_once_under_the_ceilings(
    sizes: list[int], ranks: int, tokens: int, examples: int, pads: bool
) -> None:
    made = cut(sizes, ranks, Ceiling(tokens, examples, pads))
    dealt = [position for hand in made for micro_batch in hand for position in micro_batch]
    assert sorted(dealt) == list(range(len(sizes)))
    assert len(made) == ranks
    assert len({len(hand) for hand in made}) == 1
    for hand in made:
        for micro_batch in filter(None, hand):
            mine = [sizes[position] for position in micro_batch]
            assert (len(mine) * max(mine) if pads else sum(mine)) <= tokens
            assert not examples or len(mine) <= examples


def test_fewer_examples_than_ranks_leaves_filler_on_the_others() -> None:
    """Case B17, 3 rows on 4 ranks: nothing is repeated, and the fourth rank has one micro-batch without examples."""
    made = cut([5, 7, 6], 4, Ceiling(64))
    assert sorted(hand[0] for hand in made) == [[], [0], [1], [2]]


def test_17_examples_on_2_ranks_are_17_examples() -> None:
    """Case B25: nothing need divide anything."""
    made = cut([10] * 17, 2, Ceiling(40))
    assert sorted(position for hand in made for micro in hand for position in micro) == list(range(17))
    assert [len(hand) for hand in made] == [3, 3]  # 170 tokens in micro-batches of 4: 5, so 3 on each of 2 ranks


def test_the_load_is_even_over_ranks() -> None:
    """64 examples on 8 ranks: the busiest has at most 3 % more than the mean of the stated cost."""
    lengths = random.Random(0)
    sizes = [int(lengths.lognormvariate(5, 0.7)) + 5 for _ in range(64)]
    loads = [sum(cost(sizes[p]) for micro in hand for p in micro) for hand in cut(sizes, 8, Ceiling(8192))]
    assert max(loads) / (sum(loads) / 8) < 1.03


def test_an_example_that_nothing_can_hold_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"batch\.tokens_per_device = 512 can't hold an example of 611 tokens"):
        cut([10, 611], 1, Ceiling(512))


def test_padded_rows_are_cut_by_their_longest() -> None:
    """Lengths 8, 8, 2, 2 under 16 padded tokens: the long ones together, the short ones together."""
    made = cut([8, 2, 8, 2], 1, Ceiling(16, pads=True))
    assert made[0] == [[0, 2], [1, 3]]
