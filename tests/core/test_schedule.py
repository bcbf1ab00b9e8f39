"""The learning rate as a function of the step alone."""

import math

import pytest

from ike_core.errors import ConfigError
from ike_core.schedule import Schedule


def factors(schedule: Schedule, steps: int) -> list[float]:
    return [schedule(step, steps) for step in range(steps)]


def test_linear_rises_over_the_warm_up_and_falls_to_zero_after_the_last_update() -> None:
    linear = Schedule(shape="linear", warmup_steps=2)
    # Warm-up k / 2; then (10 - k) / 8: update 9 is the last, and 0 is where an update 10 would be.
    assert factors(linear, 10) == [0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert linear(10, 10) == 0.0


def test_a_warm_up_starts_at_zero_and_reaches_the_peak_when_it_is_over() -> None:
    assert factors(Schedule(warmup_steps=4), 6) == [0, 0.25, 0.5, 0.75, 1, 1]


def test_constant_is_one_at_every_step() -> None:
    assert factors(Schedule(), 5) == [1.0] * 5


def test_cosine_is_half_way_at_half_time_and_ends_at_its_final_share() -> None:
    cosine = Schedule(shape="cosine", warmup_steps=1, final_share=0.2)
    # Eight updates of decay after the warm-up: 0.2 + 0.8 * (1 + cos(pi * done)) / 2.
    assert cosine(1, 9) == 1.0
    assert cosine(3, 9) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)  # a quarter: cos(pi / 4)
    assert cosine(5, 9) == pytest.approx(0.2 + 0.4)  # a half: cos(pi / 2) = 0
    assert cosine(9, 9) == pytest.approx(0.2)


def test_wsd_is_flat_and_then_falls_over_the_last_share() -> None:
    wsd = Schedule(shape="wsd", warmup_steps=2, decay_share=0.4, final_share=0.5)
    # Four of ten updates decay, from 1 at step 6 to 0.5 at step 10: 0.125 less each.
    assert factors(wsd, 10) == [0, 0.5, 1, 1, 1, 1, 1, 0.875, 0.75, 0.625]


def test_wsd_decays_over_a_tenth_unless_told_otherwise() -> None:
    assert factors(Schedule(shape="wsd"), 20)[17:] == [1.0, 1.0, 0.5]


def test_every_shape_stays_between_its_ends() -> None:
    for schedule in (Schedule(shape=shape, warmup_steps=3, final_share=0.1) for shape in ("linear", "cosine", "wsd")):
        after_warmup = [schedule(step, 50) for step in range(3, 51)]
        assert after_warmup == sorted(after_warmup, reverse=True)
        assert (after_warmup[0], after_warmup[-1]) == (1.0, pytest.approx(0.1))


def test_a_run_of_nothing_but_warm_up_is_allowed() -> None:
    assert factors(Schedule(shape="linear", warmup_steps=2), 2) == [0, 0.5]


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine", "wsd"])
def test_a_warm_up_longer_than_the_run_is_refused_with_both_numbers(shape) -> None:
    with pytest.raises(ConfigError, match=r"warmup_steps = 20 is longer than the run of 10 updates.*<= 10"):
        Schedule(shape=shape, warmup_steps=20)(0, 10)


def test_warm_up_and_decay_that_overlap_are_refused_with_their_numbers() -> None:
    with pytest.raises(ConfigError, match=r"warmup_steps = 6 and a decay of 5 updates .*don't fit in the run of 10"):
        Schedule(shape="wsd", warmup_steps=6, decay_share=0.5)(0, 10)


@pytest.mark.parametrize(
    "fields", [{"final_share": 0.1}, {"decay_share": 0.1}, {"shape": "cosine", "decay_share": 0.1}]
)
def test_a_field_that_would_do_nothing_is_refused(fields) -> None:
    with pytest.raises(ConfigError, match=r"does nothing with schedule\.shape"):
        Schedule(**fields)


@pytest.mark.parametrize("fields", [{"warmup_steps": -1}, {"final_share": 1.5}, {"shape": "wsd", "decay_share": 0.0}])
def test_a_value_out_of_range_is_refused(fields) -> None:
    with pytest.raises(ValueError, match="must be"):
        Schedule(**fields)
