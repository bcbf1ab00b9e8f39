"""A plain `train_forward_step_fn(model, samples)` as an objective."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import attrs

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.errors import ConfigError
from ike_core.mean import Mean
from ike_core.spoken import kind_of, name_of
from ike_core.step_output import StepOutput


@runtime_checkable
class Scalar(Protocol):
    """A tensor, as far as this half of ike knows one."""

    shape: Any
    requires_grad: bool

    def __rmul__(self, other: float) -> Any: ...


@attrs.frozen
class StepFunction:
    """Calls the function with the batch's tensors; makes totals of what it returns.

    A StepOutput or a Mean is taken as it is. `(total, weight)` is a mean per tokens where there are labels, else per
    examples. A bare scalar is taken as the mean over the supervised tokens of the micro-batch if there are labels,
    else over its examples; the self-check at the start tells when that was wrong.
    """

    function: Callable[[Any, Mapping[str, Any]], Any]

    def __call__(self, model: Any, batch: Batch, context: Context) -> StepOutput:  # noqa: ARG002
        per = "tokens" if "labels" in batch.tensors else "examples"
        match self.function(model, batch.tensors):
            case StepOutput() as output:
                return output
            case Mean() as mean:
                return StepOutput(mean)
            case (total, weight):
                return StepOutput(Mean(total, weight, per))
            case (Scalar() | int() | float()) as scalar:
                weight = batch.weights[per]
                return StepOutput(Mean(weight * scalar, weight, per))
            case other:
                raise ConfigError(
                    f"{name_of(self.function)} returned {kind_of(other)}; a step function returns the loss, such as "
                    "model(**samples).loss, or (total, weight), a Mean or a StepOutput"
                )


def required_positionals(function: Callable[..., Any]) -> int:
    """How many arguments must be given by position; self is not counted."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


def is_plain(function: Callable[..., Any], *, name: str) -> bool:
    """Whether it is a plain function (model, samples) or an objective (model, batch, context)."""
    count = required_positionals(function)
    if count not in (2, 3):
        raise ConfigError(
            f"{name} takes {count} required arguments; a plain function takes two (model, samples), "
            "an objective three (model, batch, context)"
        )
    return count == 2
