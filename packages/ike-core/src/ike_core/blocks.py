"""Which of several takes each place of an endless line, so that all get their shares: a function of the place.

The line is cut into blocks. A block's quotas are within one of the shares, and over ROUND blocks they are the shares
to 1 / (BLOCK x ROUND); who stands where in a block is a permutation of its key.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Self

import attrs

from ike_core.ordering import Permutation
from ike_core.randomness import mix

BLOCK = 256
"""Places of a block."""
ROUND = 256
"""Blocks after which the quotas repeat."""
STRIDE = 159
"""About the golden share of ROUND and prime to it: what a block rounds down the next few make up for."""


@attrs.frozen
class Blocks:
    """The shares of some takers, numbered from 0."""

    bounds: tuple[int, ...]
    """Shares summed up, in BLOCK x ROUND parts; the last is all of them."""
    key: int

    @classmethod
    def of(cls, weights: Sequence[float], key: int) -> Self:
        """In proportion to weights, of which one is positive."""
        total = math.fsum(weights)
        return cls(tuple(round(BLOCK * ROUND * part / total) for part in accumulate(weights)), key)

    def quotas(self, block: int) -> list[int]:
        """Places that each taker has in a block."""
        return _differences(_marks(self.bounds, block))

    def taken(self, block: int) -> list[int]:
        """Places that each has in all blocks before this one."""
        rounds, rest = divmod(block, ROUND)
        in_round = _ends_in_round(self.bounds)
        ends = [rounds * whole + part for whole, part in zip(in_round[ROUND], in_round[rest], strict=True)]
        return _differences(ends)

    def taken_before(self, place: int) -> list[int]:
        """Places that each has before this place of the line."""
        block, rest = divmod(place, BLOCK)
        taken = self.taken(block)
        for taker, count in Counter(self._order(block)[:rest]).items():
            taken[taker] += count
        return taken

    def place_after(self, taker: int, count: int) -> int:
        """The place just after the one that is the taker's `count`-th; `count` from 1."""
        each_round = self.taken(ROUND)[taker]
        blocks = range((count // each_round + 1) * ROUND + 1)
        block = bisect_left(blocks, count, key=lambda number: self.taken(number)[taker]) - 1
        missing = count - self.taken(block)[taker]
        mine = [place for place, other in enumerate(self._order(block)) if other == taker]
        return block * BLOCK + mine[missing - 1] + 1

    def at(self, place: int) -> tuple[int, int]:
        """Who takes a place, and how many places that taker has before it."""
        block, rest = divmod(place, BLOCK)
        return _numbered(self, block)[rest]

    def _order(self, block: int) -> list[int]:
        """The taker of each place of a block."""
        marks = _marks(self.bounds, block)
        order = Permutation(BLOCK, mix(self.key, block))
        return [bisect_right(marks, order[place]) for place in range(BLOCK)]


def _marks(bounds: Sequence[int], block: int) -> list[int]:
    """A block's quotas summed up. Over a ROUND the offsets are 0 .. ROUND - 1: marks sum to bounds (Hermite)."""
    offset = block * STRIDE % ROUND
    return [(bound + offset) // ROUND for bound in bounds]


@lru_cache(maxsize=8)
def _ends_in_round(bounds: tuple[int, ...]) -> list[list[int]]:
    """The marks of a ROUND's first blocks summed up: of none, of one, ... of all."""
    ends = [[0] * len(bounds)]
    for block in range(ROUND):
        ends.append([end + mark for end, mark in zip(ends[-1], _marks(bounds, block), strict=True)])
    return ends


def _differences(ends: Sequence[int]) -> list[int]:
    return [last - first for first, last in pairwise([0, *ends])]


@lru_cache(maxsize=8)
def _numbered(blocks: Blocks, block: int) -> list[tuple[int, int]]:
    """`at` for every place of a block: a step reads a few blocks, place after place."""
    taken, numbered = blocks.taken(block), list[tuple[int, int]]()
    for taker in blocks._order(block):
        numbered.append((taker, taken[taker]))
        taken[taker] += 1
    return numbered
