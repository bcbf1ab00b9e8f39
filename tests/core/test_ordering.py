"""The data order is a function: a bijection, even, the same at any step reached from anywhere."""

import math
import tracemalloc
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core.errors import ConfigError
from ike_core.ordering import SMALL, Ordering, Permutation


@given(st.integers(1, 3 * SMALL), st.integers(0, 2**64 - 1))
def test_a_permutation_is_a_bijection_for_every_size(size: int, key: int) -> None:
    permutation = Permutation(size, key)
    assert sorted(permutation[i] for i in range(size)) == list(range(size))


@pytest.mark.parametrize("size", [SMALL - 1, SMALL, SMALL + 1, 64 * 64, 65 * 64, 10_007])
def test_a_permutation_is_a_bijection_at_the_edges_of_its_grid(size: int) -> None:
    permutation = Permutation(size, 7)
    assert sorted(permutation[i] for i in range(size)) == list(range(size))


def chi_square_bound(degrees: int) -> float:
    """The 0.1 % point, by Wilson and Hilferty's cube: 20.6 for 5, 49.7 for 23, 842 for 719."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + 3.0902 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_small_permutations_are_uniform(size: int) -> None:
    """Chi-square over all orders of so few, with 40 keys an order."""
    orders = math.factorial(size)
    counts = Counter(tuple(Permutation(size, key)) for key in range(40 * orders))
    assert len(counts) == orders
    assert sum((count - 40) ** 2 / 40 for count in counts.values()) < chi_square_bound(orders - 1)


@pytest.mark.parametrize("size", [SMALL - 1, SMALL, SMALL + 1])
def test_permutations_are_even_on_both_sides_of_where_the_method_changes(size: int) -> None:
    """Chi-square of where the first, a middle and the last index land, in 16 bins, over 160 keys each."""
    bins: Counter[tuple[int, int]] = Counter()
    for order in (Permutation(size, key) for key in range(160)):
        bins.update((index, order[index] * 16 // size) for index in (0, size // 2, size - 1))
    for index in (0, size // 2, size - 1):
        assert sum((bins[index, place] - 10) ** 2 / 10 for place in range(16)) < chi_square_bound(15)


def test_the_first_two_of_a_large_permutation_fall_anywhere_together() -> None:
    """Chi-square of the pair (0, 1) of SMALL in an 8 x 8 grid, over 6,400 keys: 63 degrees."""
    pairs = (Permutation(SMALL, key) for key in range(6_400))
    cells = Counter((order[0] * 8 // SMALL, order[1] * 8 // SMALL) for order in pairs)
    assert sum((cells[cell] - 100) ** 2 / 100 for cell in product(range(8), repeat=2)) < chi_square_bound(63)


def test_large_permutations_send_an_index_anywhere() -> None:
    """Chi-square of where index 17 of 10,000 lands, in 20 bins, over 20,000 keys: 19 degrees, 0.1 % point 43.8."""
    bins = Counter(Permutation(10_000, key)[17] * 20 // 10_000 for key in range(20_000))
    assert sum((count - 1000) ** 2 / 1000 for count in bins.values()) < 43.8


def test_large_permutations_separate_neighbours() -> None:
    """Two neighbours' distance is as for two independent draws: mean size / 3 (within 3 standard errors of 2,000)."""
    size = 10_000
    distances = [abs(Permutation(size, key)[500] - Permutation(size, key)[501]) for key in range(2_000)]
    standard_error = size / math.sqrt(18) / math.sqrt(2_000)
    assert abs(sum(distances) / 2_000 - size / 3) < 3 * standard_error


def test_an_epoch_sees_every_example_once_and_its_last_step_holds_what_is_left() -> None:
    ordering = Ordering(size=10, examples_per_step=4, seed=17)
    steps = [ordering.examples(step) for step in range(3)]
    assert [len(step) for step in steps] == [4, 4, 2]
    assert sorted(index for step in steps for index in step) == list(range(10))


def test_epochs_differ_and_seeds_differ() -> None:
    ordering = Ordering(size=100, examples_per_step=100, seed=17)
    assert ordering.examples(0) != ordering.examples(1)
    assert ordering.examples(0) != Ordering(size=100, examples_per_step=100, seed=18).examples(0)


def test_a_step_is_reached_without_the_steps_before_it() -> None:
    """Case B05: a run that starts at step 3 sees what one that came from step 0 sees there."""
    through = Ordering(size=8, examples_per_step=2, seed=0)
    for step in range(3):
        through.examples(step)
    assert through.examples(3) == Ordering(size=8, examples_per_step=2, seed=0).examples(3)
    second_epoch = [index for step in range(4, 8) for index in through.examples(step)]
    assert sorted(second_epoch) == list(range(8))


def test_any_step_of_a_trillion_examples_is_reached_at_once_and_without_a_list() -> None:
    """A list of 10^12 would be terabytes; what is held at most is less than a page a step's worth of integers."""
    tracemalloc.start()
    try:
        ordering = Ordering(size=10**12, examples_per_step=64, seed=1)
        assert len(set(ordering.examples(10**10))) == 64
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("step", "epoch"), [(0, 0.0), (1, 0.4), (3, 1.0), (4, 1.4)])
def test_epochs_are_counted_by_what_was_seen(step: int, epoch: float) -> None:
    ordering = Ordering(size=10, examples_per_step=4, seed=0)
    assert ordering.epoch(step) == pytest.approx(epoch)


@pytest.mark.parametrize(("epochs", "steps"), [(1.0, 3), (2.0, 6), (0.5, 2), (0.01, 1)])
def test_a_length_in_epochs_is_at_least_a_step(epochs: float, steps: int) -> None:
    assert Ordering(size=10, examples_per_step=4, seed=0).steps(epochs=epochs) == steps


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="no examples"):
        Ordering(size=0, examples_per_step=4, seed=0)
