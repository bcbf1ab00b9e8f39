"""Examples as packed numpy batches of one static shape, for a training loop of anyone's: JAX, plain torch, Megatron.

R rows, T tokens of a row. Needs the extra `numpy`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from ike_core.best_fit import best_fit
from ike_core.errors import ConfigError, DataError
from ike_core.examples import Example
from ike_core.ordering import Ordering

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@attrs.frozen
class Stretch:
    """Tokens [start, end) of an example: all of it, or a part where it is longer than a row."""

    example: int
    """Its place among the examples."""
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


Plan = tuple[tuple[Stretch, ...], ...]
"""What each row of a batch holds; fewer rows than a batch has where an epoch ends."""


@attrs.frozen(eq=False)
class StaticBatch:
    """One batch; what is padding is 0 in `weights`, `positions` and `segments`, and `pad` in the other two."""

    input_ids: "NDArray[np.int32]"
    """[R, T]"""
    targets: "NDArray[np.int32]"
    """[R, T] The token that follows in the example, also where that stands in another row."""
    weights: "NDArray[np.float32]"
    """[R, T] Of the target: token weight x row weight; 0 where it is not learned, or none follows."""
    positions: "NDArray[np.int32]"
    """[R, T] From 0 in every stretch."""
    segments: "NDArray[np.int32]"
    """[R, T] 1, 2, 3 ... along a row: attention must not cross from one to another. 0 is padding."""
    plan: Plan

    @property
    def tokens(self) -> int:
        """Without padding."""
        return sum(len(stretch) for row in self.plan for stretch in row)


@attrs.frozen(kw_only=True)
class StaticBatches:
    """Batches of `rows` x `tokens`, every example once an epoch, packed best-fit, in an order of the seed and epoch.

    An example's tokens stand in one row; one that is longer than a row is refused, or 'split' into stretches that don't
    see each other. No token and no target is lost: the tokens of an epoch's batches are those of the examples, and
    their weights sum to the examples' `supervised`.
    """

    examples: Sequence[Example]
    """Such as a list, or the dataset of a store."""
    rows: int = attrs.field(validator=attrs.validators.ge(1))
    tokens: int = attrs.field(validator=attrs.validators.ge(2))
    pad: int = 0
    """Token id in the place of none."""
    seed: int = 0
    too_long: Literal["refuse", "split"] = attrs.field(
        default="refuse", validator=attrs.validators.in_(("refuse", "split"))
    )
    """What becomes of an example of more than `tokens` tokens."""
    window: int = attrs.field(default=4096, validator=attrs.validators.ge(1))
    """Examples that are packed at once: more fill the rows better, fewer stay nearer to the drawn order."""

    def epoch(self, number: int) -> Iterator[StaticBatch]:
        """All batches of an epoch, from 0. The last may have rows that are padding alone.

        DataError where an example is longer than a row and not to be split, or no single sequence.
        """
        return map(self.batch, self.plans(number))

    def plans(self, number: int) -> Iterator[Plan]:
        """What `epoch` makes batches of: to go on behind the n-th, pass over n plans; no token is read for it."""
        if not len(self.examples):
            raise DataError("there are no examples to make batches of")
        ordering = Ordering(len(self.examples), self.window, self.seed)
        waiting: list[Stretch] = []
        for step in range(number * ordering.steps_per_epoch, (number + 1) * ordering.steps_per_epoch):
            waiting += [stretch for example in ordering.examples(step) for stretch in self._stretches(example)]
            packed = self._packed(waiting)
            whole = len(packed) // self.rows * self.rows
            yield from self._grouped(packed[:whole])
            waiting = [stretch for row in packed[whole:] for stretch in row]  # packed anew with the next window
        yield from self._grouped(self._packed(waiting))

    def batch(self, plan: Plan) -> StaticBatch:
        """ConfigError where numpy is not installed."""
        np = _numpy()
        shape = (self.rows, self.tokens)
        inputs, targets = (np.full(shape, self.pad, np.int32) for _ in range(2))
        positions, segments = (np.zeros(shape, np.int32) for _ in range(2))
        weights = np.zeros(shape, np.float32)
        for row, stretches in enumerate(plan):
            column = 0
            for number, stretch in enumerate(stretches, 1):
                example = self.examples[stretch.example]
                trunk, end = example.trunk, column + len(stretch)
                inputs[row, column:end] = trunk.tokens[stretch.start : stretch.end]
                following = trunk.tokens[stretch.start + 1 : stretch.end + 1]
                targets[row, column : column + len(following)] = following
                learned = np.asarray(trunk.weights[stretch.start + 1 : stretch.end + 1], np.float32)
                weights[row, column : column + len(learned)] = learned * np.float32(example.weight)
                positions[row, column:end] = np.arange(len(stretch))
                segments[row, column:end] = number
                column = end
        return StaticBatch(inputs, targets, weights, positions, segments, plan)

    def _stretches(self, number: int) -> list[Stretch]:
        example = self.examples[number]
        if not isinstance(example, Example):
            raise DataError(f"{_called(example, number)} is a {type(example).__name__}, and not one sequence of tokens")
        size = len(example)
        if size > self.tokens and self.too_long == "refuse":
            raise DataError(
                f"{_called(example, number)} has {size} tokens, and a row {self.tokens}; make rows longer, set "
                "too_long='split', or leave it out"
            )
        starts = range(0, size, self.tokens)
        return [Stretch(number, start, min(start + self.tokens, size)) for start in starts]

    def _packed(self, stretches: Sequence[Stretch]) -> list[tuple[Stretch, ...]]:
        """Rows, the fullest first."""
        bins = best_fit([len(stretch) for stretch in stretches], self.tokens)
        rows = [tuple(stretches[place] for place in places) for places in bins]
        return sorted(rows, key=lambda row: -sum(map(len, row)))

    def _grouped(self, rows: Sequence[tuple[Stretch, ...]]) -> Iterator[Plan]:
        """A batch is every n-th row, so that all are about as full."""
        count = -(-len(rows) // self.rows)
        return (tuple(rows[first::count]) for first in range(count))


def _called(example: Example, number: int) -> str:
    return example.source or f"example {number}"


def _numpy() -> Any:
    try:
        import numpy as np  # an extra: paid only by who makes batches of it
    except ImportError as error:
        raise ConfigError("batches of arrays need numpy: pip install 'ike-data[numpy]'") from error
    return np
