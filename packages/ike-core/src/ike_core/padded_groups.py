"""Padded rows in groups: every row of a group is as long as its longest."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import mul

import attrs

EXACT = 256
"""A share of the dearest group's work that is not worth looking for."""


@attrs.define
class PaddedGroups:
    """Examples of some rows each, all rows of an example as long as its longest, cut into groups in order of length.

    In that order as many as fit make the fewest groups: who shares a group with the longest example pays its length,
    so they are the next longest.
    """

    sizes: Sequence[int]
    """Tokens of each example's longest row."""
    rows: Sequence[int]
    """Rows of each example."""
    works: Sequence[int]
    """What a row of each example costs."""
    tokens: int
    """Of a group, padding included."""
    most: int
    """Examples of a group; 0: no limit."""
    _order: list[int] = attrs.field(init=False)
    _rows_before: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._order = sorted(range(len(self.sizes)), key=self.sizes.__getitem__, reverse=True)
        self._rows_before = [0, *accumulate(self.rows[position] for position in self._order)]

    def fewest(self) -> int:
        """Groups, as few as the ceilings allow."""
        return len(self._ends(None))

    def spread(self, count: int) -> list[list[int]]:
        """At most `count` groups, no fewer than fit, the dearest as cheap as can be within 1 / EXACT."""
        dearest = max((self._work(first, last) for first, last in self._between(None)), default=0)
        cheapest = min(dearest, sum(map(mul, self.works, self.rows)) // count)  # as if nothing were padded
        while dearest - cheapest > dearest // EXACT:
            between = (cheapest + dearest) // 2
            if len(self._ends(between)) <= count:
                dearest = between
            else:
                cheapest = between
        return [self._order[first:last] for first, last in self._between(dearest)]

    def work_of(self, group: Sequence[int]) -> int:
        """What a group costs, padding included."""
        return sum(map(self.rows.__getitem__, group)) * max(map(self.works.__getitem__, group), default=0)

    def _work(self, first: int, last: int) -> int:
        return (self._rows_before[last] - self._rows_before[first]) * self.works[self._order[first]]

    def _between(self, dearest: int | None) -> Iterable[tuple[int, int]]:
        return pairwise([0, *self._ends(dearest)])

    def _ends(self, dearest: int | None) -> list[int]:
        """Where each group ends: as many examples as ceilings, and a work of `dearest`, let it have; at least one."""
        ends, first = list[int](), 0
        while first < len(self._order):
            longest = self._order[first]
            rows = self.tokens // max(self.sizes[longest], 1)
            if dearest is not None:
                rows = min(rows, dearest // max(self.works[longest], 1))
            last = bisect_right(self._rows_before, self._rows_before[first] + rows) - 1
            if self.most:
                last = min(last, first + self.most)
            first = max(last, first + 1)
            ends.append(first)
        return ends
