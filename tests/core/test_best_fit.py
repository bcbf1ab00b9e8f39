"""Best-fit packing: every sequence once, no bin too full, few bins."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core.best_fit import best_fit


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(0, 6))
def test_every_sequence_is_in_one_bin_and_no_bin_is_too_full(sizes: list[int], most: int) -> None:
    bins = best_fit(sizes, 40, most=most)
    assert sorted(position for one in bins for position in one) == list(range(len(sizes)))
    for one in bins:
        assert sum(sizes[position] for position in one) <= 40
        assert 0 < len(one) <= (most or len(sizes))


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(0, 6))
def test_it_fills_as_many_bins_as_one_sequence_at_a_time(sizes: list[int], most: int) -> None:
    """Against the definition: longest first, each into the fullest bin that takes it, one by one."""
    rooms: list[tuple[int, int]] = []  # tokens left, sequences held
    for size in sorted(sizes, reverse=True):
        fitting = [place for place, (left, held) in enumerate(rooms) if left >= size and (not most or held < most)]
        if fitting:
            place = min(fitting, key=lambda place: rooms[place])
            rooms[place] = (rooms[place][0] - size, rooms[place][1] + 1)
        else:
            rooms.append((40 - size, 1))
    if not most:  # with a limit, bins that are equally full may hold more or fewer, and ties decide
        assert len(best_fit(sizes, 40)) == len(rooms)
    assert len(best_fit(sizes, 40, most=most)) <= len(rooms) * 1.7 + 1


def test_an_example_worked_by_hand() -> None:
    """Room 10: 7, 6, 4, 3, 3, 2 go 7+3, 6+4, 3+2. Alike lengths lie in the order they came in."""
    assert sorted(map(sorted, best_fit([3, 6, 7, 2, 3, 4], 10))) == [[0, 2], [1, 5], [3, 4]]


def test_bins_are_0_997_full_on_lengths_like_those_of_conversations() -> None:
    lengths = random.Random(0)
    sizes = [min(2048, int(lengths.lognormvariate(5.5, 0.8)) + 1) for _ in range(20_000)]
    assert sum(sizes) / (2048 * len(best_fit(sizes, 2048))) >= 0.997


def test_a_sequence_longer_than_a_bin_is_refused() -> None:
    with pytest.raises(ValueError, match="11 tokens is longer than the room of 10"):
        best_fit([3, 11], 10)
