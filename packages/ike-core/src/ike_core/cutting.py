"""A step's examples to ranks and micro-batches, from their lengths alone.

World size and ceilings change the cut, never the set. Every rank gets the same number of micro-batches; one without
examples is filler.
"""

from collections.abc import Sequence

import attrs

from ike_core.errors import ConfigError

QUADRATIC = 8192
"""Tokens at which attention over an example costs as much as everything else that is done to it (about 6 x hidden)."""

Cut = list[list[list[int]]]
"""cut[rank][micro_batch]: positions in the step's list of examples."""


def cost(tokens: int) -> float:
    """The stated cost model: linear layers per token, attention per token and token before it."""
    return tokens * (1 + tokens / QUADRATIC)


@attrs.frozen
class Ceiling:
    """What one micro-batch on one rank may hold."""

    tokens: int
    examples: int = 0
    """0: no limit."""
    pads: bool = False
    """Rows are as long as the longest of their micro-batch, so that is what counts."""

    def holds(self, count: int, tokens: int, longest: int) -> bool:
        """Whether `count` examples of `tokens` in all, the longest of `longest`, make one micro-batch."""
        return (count * longest if self.pads else tokens) <= self.tokens and not 0 < self.examples < count


@attrs.define
class _Bin:
    """A micro-batch while it is filled."""

    positions: list[int] = attrs.field(factory=list)
    tokens: int = 0
    longest: int = 0
    cost: float = 0.0

    def takes(self, size: int, ceiling: Ceiling) -> bool:
        return ceiling.holds(len(self.positions) + 1, self.tokens + size, max(self.longest, size))

    def add(self, position: int, size: int) -> None:
        self.positions.append(position)
        self.tokens += size
        self.longest = max(self.longest, size)
        self.cost += cost(size)


def cut(sizes: Sequence[int], ranks: int, ceiling: Ceiling) -> Cut:
    """Deals examples of these sizes (tokens, trunks once) to ranks and micro-batches, balanced by `cost`.

    First as few micro-batches as fit, then the load spread over all micro-batches that the ranks will run anyway.
    Raises ConfigError for an example that no micro-batch can hold.
    """
    too_long = max(sizes, default=0)
    if too_long > ceiling.tokens:
        raise ConfigError(f"batch.tokens_per_device = {ceiling.tokens} can't hold an example of {too_long} tokens")
    order = sorted(range(len(sizes)), key=lambda position: -sizes[position])
    packed = _first_fit(order, sizes, ceiling)
    micro_batches = max(1, -(-len(packed) // ranks))
    bins = _spread(order, sizes, ceiling, ranks * micro_batches) or packed
    return _deal(bins, ranks, micro_batches)


def _first_fit(order: Sequence[int], sizes: Sequence[int], ceiling: Ceiling) -> list[_Bin]:
    """Longest first, each into the fullest micro-batch that takes it (into the last one where rows are padded)."""
    bins: list[_Bin] = []
    for position in order:
        size = sizes[position]
        candidates = bins[-1:] if ceiling.pads else bins
        fitting = [room for room in candidates if room.takes(size, ceiling)]
        if fitting:
            room = max(fitting, key=lambda room: room.tokens)
        else:
            room = _Bin()
            bins.append(room)
        room.add(position, size)
    return bins


def _spread(order: Sequence[int], sizes: Sequence[int], ceiling: Ceiling, count: int) -> list[_Bin] | None:
    """Longest first, each into the cheapest of `count` micro-batches that takes it; None where one fits nowhere.

    Graham's rule: the busiest is at most 4/3 of the best possible.
    """
    if ceiling.pads:  # spreading by cost would pair long rows with short ones
        return None
    bins = [_Bin() for _ in range(count)]
    for position in order:
        fitting = [room for room in bins if room.takes(sizes[position], ceiling)]
        if not fitting:
            return None
        min(fitting, key=lambda room: room.cost).add(position, sizes[position])
    return bins


def _deal(bins: list[_Bin], ranks: int, micro_batches: int) -> Cut:
    """Dearest first, each to the rank with the least so far that still has room for a micro-batch."""
    hands: list[list[_Bin]] = [[] for _ in range(ranks)]
    for room in sorted(bins, key=lambda room: -room.cost):
        free = [hand for hand in hands if len(hand) < micro_batches]
        min(free, key=lambda hand: sum(other.cost for other in hand)).append(room)
    return [[sorted(room.positions) for room in hand] + [[]] * (micro_batches - len(hand)) for hand in hands]
