"""What an objective returned, taken only where it can be learned from."""

from collections.abc import Mapping, Sequence
from typing import Any

from ike_core.errors import ConfigError
from ike_core.mean import Mean
from ike_core.spoken import kind_of, name_of
from ike_core.step_function import Scalar, StepFunction
from ike_core.step_output import StepOutput

OWN = frozenset(
    "step loss grad_norm learning_rate epoch examples tokens supervised_tokens tokens_per_second seconds "
    "peak_memory_bytes nonfinite".split()
)
"""Names in `log.jsonl` that no metric may take."""


def as_output(returned: Any, objective: Any, *, learns: bool) -> StepOutput:
    """A StepOutput; an objective may return a Mean alone. `learns`: a gradient must come of it.

    ConfigError that names the objective and says what to return. Nothing waits for the device.
    """
    try:
        return _checked(returned, learns=learns)
    except _WrongOutputError as error:
        named = objective.function if isinstance(objective, StepFunction) else objective
        raise ConfigError(f"{name_of(named)} returned {error}") from None


class _WrongOutputError(Exception):
    """What was returned, and what should have been."""


def _checked(returned: Any, *, learns: bool) -> StepOutput:
    output = StepOutput(returned) if isinstance(returned, Mean) else returned
    if not isinstance(output, StepOutput):
        raise _WrongOutputError(
            f"{kind_of(returned)}; an objective returns a StepOutput or a Mean(total, weight), so that cutting the "
            "batch can't change the loss"
        )
    if not isinstance(output.loss, Mean | Sequence) or not output.terms:
        raise _WrongOutputError("a StepOutput without a term: its loss is a Mean, or a list of (coefficient, Mean)")
    for term in output.terms:
        _check_term(term, learns=learns)
    if not isinstance(output.metrics, Mapping):
        raise _WrongOutputError(f"metrics that are {kind_of(output.metrics)}; they are a mapping, name -> Mean")
    if taken := sorted(OWN & output.metrics.keys()):
        raise _WrongOutputError(f"a metric named {taken[0]!r}, which ike reports itself; give it another name")
    for name, mean in output.metrics.items():
        if not isinstance(mean, Mean):
            raise _WrongOutputError(
                f"the metric {name!r} as {kind_of(mean)}; a metric is a Mean(total, weight), to be added up over ranks"
            )
        _check_scalars(mean, f"the metric {name!r} with")
    return output


def _check_term(term: Any, *, learns: bool) -> None:
    match term:
        case (int() | float(), Mean() as mean):
            pass
        case _:
            raise _WrongOutputError(f"{kind_of(term)} among the terms of its loss; each is a pair (coefficient, Mean)")
    _check_scalars(mean, "a loss with")
    if learns and not (isinstance(mean.total, Scalar) and mean.total.requires_grad):
        raise _WrongOutputError(
            "a loss that nothing can be learned from: its total has no gradient (was it detached, read by .item(), or "
            "made under no_grad?)"
        )


def _check_scalars(mean: Mean, what: str) -> None:
    for name, value in (("total", mean.total), ("weight", mean.weight)):
        if isinstance(value, Scalar):
            if tuple(value.shape):
                raise _WrongOutputError(f"{what} a {name} of shape {tuple(value.shape)}; sum it: a scalar is divided")
        elif not isinstance(value, int | float):
            raise _WrongOutputError(f"{what} a {name} that is {kind_of(value)}; it is a scalar tensor or a number")
