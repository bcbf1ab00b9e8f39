"""What an objective returned, taken only where it can be learned from."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ike_core.errors import ConfigError
from ike_core.mean import Mean
from ike_core.step_function import StepFunction
from ike_core.step_output import StepOutput


@runtime_checkable
class _Tensor(Protocol):
    shape: Any
    requires_grad: bool


def as_output(returned: Any, objective: Any, *, learns: bool) -> StepOutput:
    """A StepOutput; an objective may return a Mean alone. `learns`: a gradient must come of it.

    ConfigError that names the objective and says what to return. Nothing waits for the device.
    """
    try:
        return _checked(returned, learns=learns)
    except _WrongOutputError as error:
        named = objective.function if isinstance(objective, StepFunction) else objective
        name = named.__name__ if hasattr(named, "__name__") else type(named).__name__
        raise ConfigError(f"{name} returned {error}") from None


class _WrongOutputError(Exception):
    """What was returned, and what should have been."""


def _checked(returned: Any, *, learns: bool) -> StepOutput:
    output = StepOutput(returned) if isinstance(returned, Mean) else returned
    if not isinstance(output, StepOutput):
        raise _WrongOutputError(
            f"{_kind(returned)}; an objective returns a StepOutput or a Mean(total, weight), so that cutting the batch "
            "can't change the loss"
        )
    if not isinstance(output.loss, Mean | Sequence) or not output.terms:
        raise _WrongOutputError("a StepOutput without a term: its loss is a Mean, or a list of (coefficient, Mean)")
    for term in output.terms:
        _check_term(term, learns=learns)
    if not isinstance(output.metrics, Mapping):
        raise _WrongOutputError(f"metrics that are {_kind(output.metrics)}; they are a mapping, name -> Mean")
    for name, mean in output.metrics.items():
        if not isinstance(mean, Mean):
            raise _WrongOutputError(
                f"the metric {name!r} as {_kind(mean)}; a metric is a Mean(total, weight), to be added up over ranks"
            )
        _check_scalars(mean, f"the metric {name!r} with")
    return output


def _check_term(term: Any, *, learns: bool) -> None:
    match term:
        case (int() | float(), Mean() as mean):
            pass
        case _:
            raise _WrongOutputError(f"{_kind(term)} among the terms of its loss; each is a pair (coefficient, Mean)")
    _check_scalars(mean, "a loss with")
    if learns and not (isinstance(mean.total, _Tensor) and mean.total.requires_grad):
        raise _WrongOutputError(
            "a loss that nothing can be learned from: its total has no gradient (was it detached, read by .item(), or "
            "made under no_grad?)"
        )


def _check_scalars(mean: Mean, what: str) -> None:
    for name, value in (("total", mean.total), ("weight", mean.weight)):
        if isinstance(value, _Tensor):
            if tuple(value.shape):
                raise _WrongOutputError(f"{what} a {name} of shape {tuple(value.shape)}; sum it: a scalar is divided")
        elif not isinstance(value, int | float):
            raise _WrongOutputError(f"{what} a {name} that is {_kind(value)}; it is a scalar tensor or a number")


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
