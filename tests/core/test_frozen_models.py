"""A frozen model that an objective needs and no table gives."""

import attrs
import pytest

from ike_core.errors import ConfigError
from ike_core.frozen_models import FrozenModels, absent, require_frozen


@attrs.frozen
class Needs:
    needs_frozen = ("reference",)


def test_what_is_missing_is_named_with_the_table_to_write() -> None:
    said = absent(Needs(), ["teacher"])
    assert said.startswith("Needs needs the frozen model 'reference'; write [frozen.reference] with uses = ")
    with pytest.raises(ConfigError, match="Needs needs"):
        require_frozen([object(), Needs()], [])


def test_nothing_is_missing_where_it_is_there_or_nothing_is_needed() -> None:
    assert absent(Needs(), ["reference"]) == ""
    assert absent(object(), []) == ""


def test_an_objective_that_did_not_say_so_is_told_when_it_asks() -> None:
    models = FrozenModels(teacher=1)
    assert models["teacher"] == 1
    with pytest.raises(ConfigError, match=r"asks for the frozen model 'reference'; write \[frozen.reference\]"):
        models["reference"]
