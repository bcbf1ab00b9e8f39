"""Sources in shares: quotas kept, every example once a pass, any step reached at once, an end where caps say so."""

from collections import Counter
from fractions import Fraction
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ike_core.blocks import BLOCK, ROUND, Blocks
from ike_core.errors import ConfigError
from ike_core.mixing import MixedSource, MixingStage, Mixture

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=5)


def mixture(*sizes: int, shares: tuple[float, ...] = (), passes: tuple[int, ...] = (), **options: object) -> Mixture:
    """Sources a, b, ... of these sizes; `stages` as {step: shares}."""
    sources = tuple(
        MixedSource(name="abcdef"[number], size=size, passes=passes[number] if passes else 0)
        for number, size in enumerate(sizes)
    )
    stages = {0: shares or (1.0,) * len(sizes), **options.get("stages", {})}  # type: ignore[dict-item]
    return Mixture(
        sources,
        tuple(MixingStage(step, weights) for step, weights in sorted(stages.items())),
        int(options.get("examples_per_step", 8)),  # type: ignore[call-overload]
        int(options.get("seed", 17)),  # type: ignore[call-overload]
    )


def drawn(mixed: Mixture, steps: int) -> list[int]:
    return [index for step in range(steps) for index in mixed.examples(step)]


def by_source(mixed: Mixture, indices: list[int]) -> dict[str, list[int]]:
    """Places in each source, in the order drawn."""
    starts = list(accumulate((source.size for source in mixed.sources), initial=0))
    return {
        source.name: [index - start for index in indices if start <= index < start + source.size]
        for source, start in zip(mixed.sources, starts, strict=False)
    }


# -- shares -------------------------------------------------------------------------------------------------------


def test_a_block_of_256_draws_shared_3_to_1_has_192_and_64() -> None:
    blocks = Blocks.of([3.0, 1.0], key=0)
    assert [blocks.quotas(block) for block in range(3)] == [[192, 64]] * 3
    assert blocks.taken(1000) == [192_000, 64_000]


def test_shares_that_256_does_not_divide_into_are_within_one_in_a_block_and_exact_over_256() -> None:
    """A third and two thirds of 65,536 are 21,845.33 and 43,690.67: 21,845 and 43,691. A block has 85.33 of 256."""
    blocks = Blocks.of([1.0, 2.0], key=0)
    assert {blocks.quotas(block)[0] for block in range(ROUND)} == {85, 86}
    assert blocks.taken(ROUND) == [21_845, 43_691]


@given(WEIGHTS, st.integers(0, 600))
def test_quotas_fill_a_block_and_stay_near_the_shares(weights: list[float], block: int) -> None:
    blocks = Blocks.of(weights, key=0)
    quotas, total = blocks.quotas(block), sum(Fraction(weight) for weight in weights)
    assert sum(quotas) == BLOCK
    for quota, weight in zip(quotas, weights, strict=True):
        assert abs(quota - BLOCK * Fraction(weight) / total) < 1 + Fraction(1, ROUND)


@given(WEIGHTS, st.integers(0, 2 * ROUND))
def test_what_was_taken_before_a_block_is_the_sum_of_the_quotas_before(weights: list[float], block: int) -> None:
    blocks = Blocks.of(weights, key=0)
    walked = [sum(counts) for counts in zip([0] * len(weights), *map(blocks.quotas, range(block)), strict=True)]
    assert blocks.taken(block) == walked


@settings(max_examples=20)
@given(WEIGHTS, st.integers(0, 2**64 - 1))
def test_a_place_knows_how_often_its_taker_came_before(weights: list[float], key: int) -> None:
    blocks, seen = Blocks.of(weights, key), Counter[int]()
    for place in range(3 * BLOCK):
        taker, before = blocks.at(place)
        assert before == seen[taker]
        seen[taker] += 1
        if place % 16 == 0:
            assert blocks.place_after(taker, seen[taker]) == place + 1
    assert blocks.taken_before(3 * BLOCK) == [seen[taker] for taker in range(len(weights))]


def test_takers_are_mixed_within_a_block() -> None:
    """Of 256 places in two equal shares, neighbours differ about half the time: 127.5 of 255, deviation 8."""
    takers = [Blocks.of([1.0, 1.0], key=3).at(place)[0] for place in range(BLOCK)]
    changes = sum(one != other for one, other in pairwise(takers))
    assert abs(changes - 127.5) < 4 * 8


# -- passes -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(0, 2**32), st.data())
def test_no_example_comes_twice_before_all_of_its_source_came_once(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    """Exactly: a source's draws, in order, are passes over it, each whole before the next begins."""
    shares = tuple(data.draw(st.lists(st.floats(0.1, 10), min_size=len(sizes), max_size=len(sizes))))
    mixed = mixture(*sizes, shares=shares, seed=seed)
    for source, places in zip(mixed.sources, by_source(mixed, drawn(mixed, 60)).values(), strict=True):
        for first in range(0, len(places), source.size):
            turn = places[first : first + source.size]
            assert len(set(turn)) == len(turn)
            assert len(turn) == source.size or first + len(turn) == len(places)


def test_passes_differ_and_sources_do_not_change_each_others_order() -> None:
    alone = by_source(mixture(40), drawn(mixture(40), 20))["a"]
    mixed = mixture(40, 50, shares=(2.0, 1.0))
    beside = by_source(mixed, drawn(mixed, 20))["a"]
    assert alone[:40] != alone[40:80]
    assert beside == alone[: len(beside)]


def test_a_step_is_reached_without_the_steps_before_it() -> None:
    through = mixture(30, 70, passes=(2, 0), stages={5: (1.0, 3.0)})
    walked = [through.examples(step) for step in range(60)]
    assert [mixture(30, 70, passes=(2, 0), stages={5: (1.0, 3.0)}).examples(step) for step in (59, 7, 31)] == [
        walked[59], walked[7], walked[31],
    ]  # fmt: skip


def test_a_far_step_of_a_trillion_examples_is_reached_at_once() -> None:
    mixed = mixture(10**12, 10**9, 10**6, shares=(5.0, 3.0, 2.0))
    step = mixed.examples(10**10)
    assert len(step) == 8
    assert all(0 <= index < 10**12 + 10**9 + 10**6 for index in step)


# -- caps and stages ----------------------------------------------------------------------------------------------


def test_a_capped_source_ends_after_its_passes_and_the_others_share_what_was_its() -> None:
    """10 twice, in equal parts with 1,000: 20 each in the first 40 draws or so, and from then on the other alone."""
    mixed = mixture(10, 1000, passes=(2, 0))
    draws = drawn(mixed, 50)
    places = by_source(mixed, draws)
    assert Counter(places["a"]) == dict.fromkeys(range(10), 2)
    last = max(position for position, index in enumerate(draws) if index < 10)
    assert 20 <= last < 80
    assert mixed.draws == float("inf")


def test_what_is_capped_all_over_ends_exactly_there_and_a_longer_run_is_refused_with_numbers() -> None:
    """10 three times and 50 once are 80 draws: 10 steps of 8."""
    mixed = mixture(10, 50, passes=(3, 1), shares=(1.0, 2.0))
    assert mixed.draws == 80
    places = by_source(mixed, drawn(mixed, 10))
    assert (Counter(places["a"]), len(places["b"])) == (dict.fromkeys(range(10), 3), 50)
    assert len(set(places["b"])) == 50
    assert mixed.examples(10) == []
    mixed.require(10)
    with pytest.raises(
        ConfigError, match=r"11 steps of 8 need 88 .* after 80 \(a 3 x 10, b 1 x 50\): that is 10 steps"
    ):
        mixed.require(11)


def test_the_last_step_of_what_ends_holds_what_is_left() -> None:
    mixed = mixture(9, passes=(2,))
    assert [len(mixed.examples(step)) for step in range(3)] == [8, 8, 2]
    assert mixed.epoch(3) == 2.0
    mixed.require(3)


def test_a_stage_has_its_own_shares_from_its_step_on() -> None:
    """32 steps of 8 are one block of 256: 128 and 128, then 64 and 192, then the first alone."""
    mixed = mixture(10**4, 10**4, stages={32: (1.0, 3.0), 64: (1.0, 0.0)})
    counts = [by_source(mixed, drawn(mixed, 96)[first : first + 256]) for first in (0, 256, 512)]
    assert [(len(one["a"]), len(one["b"])) for one in counts] == [(128, 128), (64, 192), (256, 0)]


def test_a_source_that_a_stage_brings_in_starts_at_its_first_pass() -> None:
    mixed = mixture(100, 30, shares=(1.0, 0.0), stages={4: (0.0, 1.0)})
    places = by_source(mixed, drawn(mixed, 8))
    assert len(places["a"]) == len(places["b"]) == 32
    assert sorted(places["b"][:30]) == list(range(30))


def test_an_end_of_what_a_stage_draws_from_is_an_end() -> None:
    """The second stage has weight on the first source alone, which is used up: 16 of it, and none after."""
    mixed = mixture(16, 100, passes=(1, 0), shares=(1.0, 1.0), stages={10: (1.0, 0.0)})
    assert mixed.draws == 80
    with pytest.raises(ConfigError, match="11 steps of 8 need 88"):
        mixed.require(11)


# -- epochs, refusals ---------------------------------------------------------------------------------------------


def test_an_epoch_is_as_many_draws_as_there_are_examples() -> None:
    mixed = mixture(30, 70)
    assert (mixed.steps_per_epoch, mixed.steps(epochs=2.0), mixed.steps(epochs=0.01)) == (13, 26, 1)
    assert mixed.epoch(25) == 2.0


def test_an_empty_source_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"data\.train\.sources\.b has no examples"):
        mixture(3, 0)


def test_a_source_that_would_hardly_ever_be_drawn_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"sources\.b would be drawn less than once in 65,536 examples"):
        mixture(3, 3, shares=(1.0, 1e-6))


def test_seeds_differ() -> None:
    one, other = mixture(100, 100, seed=1), mixture(100, 100, seed=2)
    assert drawn(one, 3) != drawn(other, 3)
