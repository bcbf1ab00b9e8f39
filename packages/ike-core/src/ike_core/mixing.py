"""Several sources in shares that are asked for: which examples make a step, as a function of (seed, step).

The draws of a run, step after step, are one line. It falls into segments, each with shares of its own: a stage begins
one, and so does a source that has been passed over as often as it may. A source's n-th draw is the n % size-th of its
pass n // size, whatever else is mixed in: no example comes twice before all of its source came once, and so on.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import attrs

from ike_core.blocks import BLOCK, ROUND, Blocks
from ike_core.errors import ConfigError
from ike_core.ordering import Permutation
from ike_core.randomness import key, mix


@attrs.frozen(kw_only=True)
class MixedSource:
    """One of the sources."""

    name: str
    size: int
    """Examples."""
    passes: int = 0
    """At most; 0: no limit."""

    @property
    def most(self) -> float:
        """Draws at most."""
        return self.passes * self.size if self.passes else math.inf


@attrs.frozen
class MixingStage:
    """From a step on, how the draws are shared out."""

    from_step: int
    shares: tuple[float, ...]
    """Of each source, in any unit."""


@attrs.frozen
class _Segment:
    start: int
    """Draws before it."""
    taken: tuple[int, ...]
    """Draws before it, by source."""
    blocks: Blocks


@attrs.frozen
class Mixture:
    """Cuts an endless mix of sources into steps. Indices count through the sources, in their order.

    An epoch is as many draws as the sources have examples together.
    """

    sources: tuple[MixedSource, ...]
    stages: tuple[MixingStage, ...]
    """By step; the first from step 0."""
    examples_per_step: int
    seed: int
    draws: float = attrs.field(init=False)
    """Until there is nothing left to draw; inf: without end."""
    _segments: tuple[_Segment, ...] = attrs.field(init=False, repr=False)
    _offsets: tuple[int, ...] = attrs.field(init=False, repr=False)
    """Examples of the sources before each."""
    _keys: tuple[int, ...] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for source in self.sources:
            if not source.size:
                raise ConfigError(
                    f"data.train.sources.{source.name} has no examples; see the ledger for what became of its rows"
                )
        sizes = [source.size for source in self.sources]
        object.__setattr__(self, "_offsets", tuple(accumulate(sizes, initial=0)))
        object.__setattr__(self, "_keys", tuple(mix(self.seed, key(source.name)) for source in self.sources))
        segments, draws = _segments(self)
        object.__setattr__(self, "_segments", segments)
        object.__setattr__(self, "draws", draws)

    @property
    def size(self) -> int:
        """Examples of all sources."""
        return self._offsets[-1]

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.size // self.examples_per_step)

    def steps(self, *, epochs: float) -> int:
        """Steps of so many epochs, rounded to the nearest, at least 1."""
        return max(1, round(epochs * self.steps_per_epoch))

    def require(self, steps: int) -> None:
        """ConfigError where the sources end before so many steps."""
        if (steps - 1) * self.examples_per_step >= self.draws:
            limits = ", ".join(
                f"{source.name} {source.passes} x {source.size:,}" for source in self.sources if source.passes
            )
            raise ConfigError(
                f"{steps:,} steps of {self.examples_per_step} need {steps * self.examples_per_step:,} examples, and "
                f"max_repeats ends the sources after {self.draws:,} ({limits}): that is "
                f"{-(-int(self.draws) // self.examples_per_step):,} steps; lower [length], or raise max_repeats"
            )

    def epoch(self, step: int) -> float:
        """Epochs done after `step` steps."""
        return min(step * self.examples_per_step, self.draws) / self.size

    def examples(self, step: int) -> list[int]:
        """Indices of the examples that step `step` (from 0) learns from, alike on every rank and world size."""
        first = step * self.examples_per_step
        return [self._example(draw) for draw in range(first, int(min(first + self.examples_per_step, self.draws)))]

    def _example(self, draw: int) -> int:
        segment = self._segments[bisect_right(self._segments, draw, key=lambda one: one.start) - 1]
        number, before = segment.blocks.at(draw - segment.start)
        size = self.sources[number].size
        turn, place = divmod(segment.taken[number] + before, size)
        return self._offsets[number] + Permutation(size, mix(self._keys[number], turn))[place]


def _segments(mixture: Mixture) -> tuple[tuple[_Segment, ...], float]:
    """All segments, and after how many draws the last one ends."""
    found: list[_Segment] = []
    start, taken = 0, [0] * len(mixture.sources)
    for stage, end in _stages(mixture):
        while start < end:
            open_shares = [
                share if taken[number] < mixture.sources[number].most else 0.0
                for number, share in enumerate(stage.shares)
            ]
            if not any(open_shares):
                return tuple(found), start
            blocks = Blocks.of(open_shares, mix(mixture.seed, key("mixing"), start))
            _refuse_tiny(mixture.sources, open_shares, blocks)
            found.append(_Segment(start, tuple(taken), blocks))
            length = min(end - start, _until_a_source_ends(mixture.sources, taken, open_shares, blocks))
            if length == math.inf:
                return tuple(found), math.inf
            taken = [before + more for before, more in zip(taken, blocks.taken_before(int(length)), strict=True)]
            start += int(length)
    raise AssertionError("the last stage has no end")


def _stages(mixture: Mixture) -> Iterator[tuple[MixingStage, float]]:
    """Each stage with the draw that ends it."""
    ends = [stage.from_step * mixture.examples_per_step for stage in mixture.stages[1:]]
    return zip(mixture.stages, [*ends, math.inf], strict=True)


def _until_a_source_ends(
    sources: Sequence[MixedSource], taken: Sequence[int], shares: Sequence[float], blocks: Blocks
) -> float:
    ends = [
        blocks.place_after(number, int(source.most) - taken[number])
        for number, source in enumerate(sources)
        if source.passes and shares[number]
    ]
    return min(ends, default=math.inf)


def _refuse_tiny(sources: Sequence[MixedSource], shares: Sequence[float], blocks: Blocks) -> None:
    for source, share, parts in zip(sources, shares, blocks.taken(ROUND), strict=True):
        if share and not parts:
            raise ConfigError(
                f"data.train.sources.{source.name} would be drawn less than once in {BLOCK * ROUND:,} examples; "
                "raise its weight, or leave it out"
            )
