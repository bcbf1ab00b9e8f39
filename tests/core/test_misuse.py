"""A pipeline that is used otherwise than it is meant says how it is meant."""

from pathlib import Path
from typing import Any

import pytest

from ike_core import ConfigError, TrainingError, TrainingPipeline
from ike_core.misuse import step_report


@pytest.mark.parametrize("file", ["base.toml", Path("base.toml")])
def test_a_file_is_not_its_settings(file: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainingPipeline(config=file)
    assert str(caught.value) == (
        "TrainingPipeline(config=...) takes what load_config gives, not 'base.toml'; "
        'say config=load_config("base.toml")'
    )


def test_nor_is_a_table() -> None:
    with pytest.raises(ConfigError, match=r'not a dict; say config=load_config\("base.toml"\)'):
        TrainingPipeline(config={"run": {"seed": 3}})  # type: ignore[arg-type]


def test_a_step_that_reports_nothing_is_named_by_its_class() -> None:
    class Mine(TrainingPipeline):
        def train_step(self, step: Any) -> Any:
            super().train_step(step)

    with pytest.raises(TrainingError, match=r"^Mine\.train_step returned a NoneType; it has to return the StepReport"):
        step_report(Mine(), None)
