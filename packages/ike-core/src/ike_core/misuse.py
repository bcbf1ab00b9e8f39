"""What is said where a pipeline was given, or its parts gave, something else than the loop needs."""

from pathlib import Path
from typing import Any

from ike_core.config import Config
from ike_core.errors import ConfigError, TrainingError
from ike_core.feed import Step
from ike_core.interfaces import StepReport
from ike_core.mean import Mean


def check_config(pipeline: object, _: Any, config: object) -> None:
    """Of the argument `config`, as an attrs validator. ConfigError says how to make one of what was given."""
    if config is None or isinstance(config, Config):
        return
    is_file = isinstance(config, str | Path)
    given = repr(str(config)) if is_file else f"a {type(config).__name__}"
    made = f'load_config("{config}")' if is_file else 'load_config("base.toml")'
    raise ConfigError(
        f"{type(pipeline).__name__}(config=...) takes what load_config gives, not {given}; say config={made}"
    )


def step_report(pipeline: object, returned: object) -> StepReport:
    """What `train_step` returned. TrainingError where an override returns anything else."""
    if isinstance(returned, StepReport):
        return returned
    raise TrainingError(
        f"{type(pipeline).__name__}.train_step returned a {type(returned).__name__}; it has to return the StepReport "
        "that self.update(step, tally) gives"
    )


def no_weight(mean: Mean, step: Step) -> TrainingError:
    """Of a loss that is to be divided by what the batch does not count."""
    return TrainingError(
        f"step {step.step + 1}: a loss per {mean.per!r} needs the step's weight of that name, and the batch counts "
        f"{dict(step.weights)}; give Mean(per=...) one of these that is not 0"
    )
