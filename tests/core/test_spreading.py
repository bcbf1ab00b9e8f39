"""Sequences spread over bins: none too full, none lost, and whoever is busiest gives what it can."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ike_core.exchange import Exchange
from ike_core.spreading import spread


def squares(sizes: Sequence[int]) -> list[int]:
    return [size * (10 + size) for size in sizes]


@given(st.lists(st.integers(1, 20), max_size=30), st.integers(1, 8), st.integers(20, 60), st.integers(0, 4))
def test_bins_hold_every_sequence_within_their_limits(sizes: list[int], count: int, room: int, most: int) -> None:
    bins = spread(sizes, squares(sizes), count, room, most=most)
    if bins is not None:
        assert len(bins) == count
        assert sorted(position for one in bins for position in one) == list(range(len(sizes)))
        assert all(sum(sizes[position] for position in one) <= room for one in bins)
        assert not most or all(len(one) <= most for one in bins)


@given(st.lists(st.integers(1, 20), max_size=30))
def test_where_there_is_room_no_bin_exceeds_the_mean_by_more_than_one_sequence(sizes: list[int]) -> None:
    """Graham's bound: when the busiest got its last sequence, it was the least busy of all."""
    works = squares(sizes)
    bins = spread(sizes, works, 4, 1000)
    assert bins is not None
    busiest = max(sum(works[position] for position in one) for one in bins)
    assert busiest <= sum(works) / 4 + max(works, default=0)


def test_a_bin_too_full_for_a_long_sequence_still_takes_a_short_one() -> None:
    """Rooms of 100. 80 is dearer than six of 16 (work 7200 against 2496), so these pile up to 96 and are still cheaper.

    15 finds only the dear bin open, which then has 5 left; 4 goes to the cheap one again, and the other 4 to the dear.
    """
    sizes = [80, *[16] * 6, 15, 4, 4]
    bins = spread(sizes, squares(sizes), 2, 100)
    assert bins is not None
    assert sorted(sum(sizes[position] for position in one) for one in bins) == [99, 100]


def test_what_fits_nowhere_is_said() -> None:
    assert spread([6, 6, 6], squares([6, 6, 6]), 2, 10) is None


@given(st.lists(st.lists(st.integers(1, 20), max_size=5), min_size=2, max_size=6), st.integers(1, 2))
def test_an_exchange_keeps_everything_within_the_limits_and_the_busiest_no_busier(
    filled: list[list[int]], bins_per_hand: int
) -> None:
    """Bins as full, and as crowded, as the fullest and most crowded of them: there is hardly any room."""
    sizes = [size for one in filled for size in one]
    positions = iter(range(len(sizes)))
    bins = [[next(positions) for _ in one] for one in filled]
    hands = [bins[first : first + bins_per_hand] for first in range(0, len(bins), bins_per_hand)]
    works, room, most = squares(sizes), max(map(sum, filled)), max(map(len, filled))

    def loads() -> list[int]:
        return [sum(works[position] for one in hand for position in one) for hand in hands]

    before = loads()
    exchange = Exchange(sizes, works, hands, list(before), room, most)
    exchange.run()
    assert max(loads()) <= max(before)
    assert loads() == exchange.loads
    assert sorted(position for one in bins for position in one) == list(range(len(sizes)))
    assert all(sum(sizes[position] for position in one) <= room for one in bins)
    assert all(len(one) <= most for one in bins)


def test_the_busiest_swaps_what_evens_the_two_best() -> None:
    """Works of 9, 6, 5, 4: 171, 96, 75, 56. Two and two are nearest as 9 + 4 and 6 + 5: 227 and 171."""
    hands = [[[0, 1]], [[2, 3]]]
    Exchange([9, 6, 5, 4], squares([9, 6, 5, 4]), hands, [267, 131], 100, 2).run()
    assert sorted(sorted(hand[0]) for hand in hands) == [[0, 3], [1, 2]]
