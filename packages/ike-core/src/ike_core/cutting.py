"""A step's examples to ranks and micro-batches, from their lengths alone.

World size and ceilings change the cut, never the set. Every rank gets the same number of micro-batches; one without
examples is filler.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from operator import mul

import attrs

from ike_core.best_fit import best_fit
from ike_core.errors import ConfigError
from ike_core.exchange import Exchange
from ike_core.padded_groups import PaddedGroups
from ike_core.spreading import spread

QUADRATIC = 8192
"""Tokens at which attention over an example costs as much as everything else that is done to it (about 6 x hidden)."""
TIGHT = 0.98
"""How full micro-batches are from which on they can only be packed: then all are as good as alike."""

Cut = list[list[list[int]]]
"""cut[rank][micro_batch]: positions in the step's list of examples."""


def cost(tokens: int) -> float:
    """The stated cost model: linear layers per token, attention per token and token before it."""
    return _work(tokens) / QUADRATIC


def _work(tokens: int) -> int:
    """`cost`, in units that are whole."""
    return tokens * (QUADRATIC + tokens)


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


def cut(sizes: Sequence[int], ranks: int, ceiling: Ceiling, rows: Sequence[int] | None = None) -> Cut:
    """Deals examples of these sizes (tokens, trunks once) to ranks and micro-batches, balanced by `cost`.

    As few micro-batches as best-fit packing finds, the same number on every rank, and the load spread over all of
    them. Where rows are padded a size is that of an example's longest row, of which it takes `rows` (None: one each).
    Raises ConfigError for an example that no micro-batch can hold.
    """
    rows = rows if rows is not None and ceiling.pads else [1] * len(sizes)
    alone = list(map(mul, sizes, rows))
    if max(alone, default=0) > ceiling.tokens:
        largest = alone.index(max(alone))
        raise ConfigError(_too_large(ceiling, sizes[largest], rows[largest]))
    return _cut_padded(sizes, rows, ranks, ceiling) if ceiling.pads else _cut_packed(sizes, ranks, ceiling)


def _too_large(ceiling: Ceiling, size: int, rows: int) -> str:
    what = f"of {size} tokens" if rows == 1 else f"that takes {rows} padded rows of {size} tokens"
    return f"batch.tokens_per_device = {ceiling.tokens} can't hold an example {what}"


def _cut_packed(sizes: Sequence[int], ranks: int, ceiling: Ceiling) -> Cut:
    works = [_work(size) for size in sizes]
    groups, count = _packed(sizes, works, ranks, ceiling)
    loads = [sum(map(works.__getitem__, group)) for group in groups]
    hands, loads = _deal(groups, loads, ranks, count // ranks)
    Exchange(sizes, works, hands, loads, ceiling.tokens, ceiling.examples).run()
    return [[sorted(micro_batch) for micro_batch in hand] for hand in hands]


def _packed(sizes: Sequence[int], works: Sequence[int], ranks: int, ceiling: Ceiling) -> tuple[list[list[int]], int]:
    """Groups, and how many the ranks run in all: by the least that could do, else by best fit."""
    tokens, most = sum(sizes), ceiling.examples
    count = _all_ranks(max(-(-tokens // ceiling.tokens), -(-len(sizes) // most) if most else 1), ranks)
    if tokens <= TIGHT * count * ceiling.tokens and (groups := spread(sizes, works, count, ceiling.tokens, most=most)):
        return groups, count
    packed = best_fit(sizes, ceiling.tokens, most=most)
    count = _all_ranks(len(packed), ranks)
    if tokens <= TIGHT * count * ceiling.tokens:
        return spread(sizes, works, count, ceiling.tokens, most=most) or packed, count
    return packed, count


def _cut_padded(sizes: Sequence[int], rows: Sequence[int], ranks: int, ceiling: Ceiling) -> Cut:
    padded = PaddedGroups(sizes, rows, list(map(_work, sizes)), ceiling.tokens, ceiling.examples)
    count = _all_ranks(padded.fewest(), ranks)
    groups = padded.spread(count)
    hands, _ = _deal(groups, [padded.work_of(group) for group in groups], ranks, count // ranks)
    return [[sorted(micro_batch) for micro_batch in hand] for hand in hands]


def _all_ranks(micro_batches: int, ranks: int) -> int:
    """So many that every rank has the same number, at least one."""
    return max(1, -(-micro_batches // ranks)) * ranks


def _deal(groups: Sequence[list[int]], works: Sequence[int], ranks: int, micro_batches: int) -> tuple[Cut, list[int]]:
    """Dearest first, each to the rank with the least so far that still has room for a micro-batch; what each has."""
    hands: Cut = [[] for _ in range(ranks)]
    loads = [0] * ranks
    least = [(0, rank) for rank in range(ranks)]
    for number in sorted(range(len(groups)), key=works.__getitem__, reverse=True):
        _, rank = heappop(least)
        hands[rank].append(groups[number])
        loads[rank] += works[number]
        if len(hands[rank]) < micro_batches:
            heappush(least, (loads[rank], rank))
    return [hand + [[] for _ in range(micro_batches - len(hand))] for hand in hands], loads
