"""What is due when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core.cadence import Cadence, Due
from ike_core.config.sections import CadenceSection, Every


def steps_of(every: Every, *, steps_per_epoch: int, until: int) -> list[int]:
    cadence = Cadence(CadenceSection(), steps_per_epoch)
    return [step for step in range(until + 1) if cadence.falls(every, step)]


def test_steps_fall_on_their_multiples_and_never_on_zero() -> None:
    assert steps_of(Every(steps=10), steps_per_epoch=7, until=35) == [10, 20, 30]


def test_shares_of_an_epoch_fall_on_the_nearest_step() -> None:
    # A quarter of 7 steps is 1.75: 1.75, 3.5, 5.25, 7, 8.75 ... to the nearest, halves up.
    assert steps_of(Every(epochs=0.25), steps_per_epoch=7, until=14) == [2, 4, 5, 7, 9, 11, 12, 14]


def test_several_epochs_are_a_whole_number_of_passes() -> None:
    assert steps_of(Every(epochs=2.0), steps_per_epoch=3, until=13) == [6, 12]


def test_a_share_shorter_than_a_step_is_due_at_every_step_once() -> None:
    assert steps_of(Every(epochs=0.1), steps_per_epoch=3, until=5) == [1, 2, 3, 4, 5]


def test_a_share_that_is_no_binary_fraction_still_meets_the_end_of_each_epoch() -> None:
    assert steps_of(Every(epochs=0.1), steps_per_epoch=10, until=1000) == list(range(1, 1001))
    assert steps_of(Every(epochs=1 / 3), steps_per_epoch=300, until=900) == list(range(100, 901, 100))


@given(epochs=st.floats(0.01, 5.0), steps_per_epoch=st.integers(1, 200))
def test_shares_agree_with_rounding_every_multiple(epochs: float, steps_per_epoch: int) -> None:
    period = epochs * steps_per_epoch
    expected = {int(k * period + 0.5) for k in range(1, int(100 / period) + 2)}  # the definition, by enumeration
    found = steps_of(Every(epochs=epochs), steps_per_epoch=steps_per_epoch, until=100)
    assert found == sorted(step for step in expected if 0 < step <= 100)


def test_before_the_first_step_only_an_evaluation_is_due() -> None:
    assert Cadence(CadenceSection(), 100).due(0, last=False) == Due(log=False, evaluate=True, save=False)


def test_at_the_last_step_everything_is_due_once() -> None:
    assert Cadence(CadenceSection(), 100).due(37, last=True) == Due(log=True, evaluate=True, save=True)


@pytest.mark.parametrize(
    ("step", "due"),
    [
        (3, Due(log=False, evaluate=False, save=False)),
        (4, Due(log=True, evaluate=False, save=False)),
        (5, Due(log=False, evaluate=True, save=False)),
        (6, Due(log=False, evaluate=False, save=True)),
        (12, Due(log=True, evaluate=False, save=True)),
    ],
)
def test_each_thing_has_a_rhythm_of_its_own(step: int, due: Due) -> None:
    section = CadenceSection(log=Every(steps=4), evaluate=Every(epochs=0.5), save=Every(steps=6))
    assert Cadence(section, steps_per_epoch=10).due(step, last=False) == due


def test_without_a_save_cadence_only_the_end_is_saved() -> None:
    cadence = Cadence(CadenceSection(save=None), steps_per_epoch=10)
    assert not any(cadence.due(step, last=False).save for step in range(100))
