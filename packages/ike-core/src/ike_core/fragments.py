"""The training state in pieces: what each rank holds of every tensor, so that any number of ranks can take it up."""

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

WEIGHT = "weight"
"""What the optimizer updates: the float32 master where the model computes in bf16, else the parameter."""
FROZEN = "frozen"
"""A parameter that no optimizer holds."""
BUFFER = "buffer"
"""A buffer that the model saves."""


@attrs.frozen(kw_only=True)
class Fragment:
    """A run of one tensor's elements, in flat order, as this rank holds it."""

    name: str
    """The parameter's or buffer's, as the model calls it."""
    kind: str
    """WEIGHT, FROZEN, BUFFER, or a key of the optimizer's state, such as exp_avg, shaped like its parameter."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: int
    """Place of the first element in the whole tensor, flattened."""
    values: Any
    """A 1-D tensor, contiguous: a view of what the engine trains with, which the next update changes."""


Counters = Mapping[str, Any]
"""JSON: the small and replicated numbers of an optimizer. `parameters`: by parameter name, such as {"step": 12};
`groups`: by group, the numbers that an optimizer keeps there beside what the settings say."""


class SavedFragments(Protocol):
    """A training state on disk, read by ranges."""

    @property
    def counters(self) -> Counters: ...

    def kinds(self, name: str) -> tuple[str, ...]:
        """What there is of a tensor; () where the name is unknown."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the whole tensor; the name is known."""
        ...

    def read(self, name: str, kind: str, start: int, count: int) -> Any:
        """`count` elements from `start`, in flat order, as a 1-D tensor on the host."""
        ...
