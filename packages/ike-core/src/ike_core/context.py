"""What an objective knows beside the batch."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ike_core.batch import Vocabulary
from ike_core.randomness import key, mix, uniform


def _no_generator(seed: int) -> Any:  # noqa: ARG001
    raise RuntimeError("this context was made without generators; give Context(new_generator=...)")


@attrs.frozen(kw_only=True)
class Context:
    """Where in the run a micro-batch stands; the source of all randomness an objective may use."""

    step: int
    """Updates finished before this one."""
    steps: int
    """Updates of the whole run."""
    epoch: float = 0.0
    training: bool = True
    seed: int = 0
    rank: int = 0
    micro_batch: int = 0
    frozen: Mapping[str, Any] = attrs.field(factory=dict)
    """Models that don't learn, by the name of their `[frozen.<name>]` table."""
    vocabulary: Vocabulary | None = None
    examples: tuple[Any, ...] = ()
    """The examples of this micro-batch, in the order of its rows; empty for filler."""
    new_generator: Callable[[int], Any] = _no_generator
    """seed -> a torch.Generator on the device."""

    def chance(self, name: str) -> float:
        """In [0, 1), equal on all ranks and micro-batches of the step."""
        return uniform(self.seed, self.step, key(name))

    def generator(self, purpose: str) -> Any:
        """A generator of this micro-batch's own: repeats exactly on the same layout."""
        return self.new_generator(mix(self.seed, self.step, self.micro_batch, self.rank, key(purpose)))

    def noise(self, example: Any, purpose: str) -> Any:
        """A generator that belongs to an example: no cut of the step changes it."""
        return self.new_generator(mix(self.seed, self.step, example.index, key(purpose)))
