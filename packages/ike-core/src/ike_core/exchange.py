"""The busiest of some hands gives to another: what dealing whole bins leaves uneven."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice, product

import attrs

EVEN = 1.001
"""Busiest over mean from which on nothing changes places."""
EXCHANGES = 64
"""At most; a step of many sequences is even without."""
TRIES = 64
"""Hands that the busiest tries, the least busy first, and pairs of bins that are tried of each."""


@attrs.define
class Exchange:
    """Hands of bins. The busiest moves a sequence to another hand, or swaps two, while that makes it less busy."""

    sizes: Sequence[int]
    works: Sequence[int]
    hands: Sequence[Sequence[list[int]]]
    """hands[rank][bin]: positions; changed in place."""
    loads: list[int]
    """Work of each hand; changed in place."""
    room: int
    """Tokens of a bin."""
    most: int
    """Sequences of a bin; 0: no limit."""

    def run(self) -> None:
        """Ends where the busiest is nearly the mean, nothing helps it, or EXCHANGES are made."""
        for _ in range(EXCHANGES):
            order = sorted(range(len(self.hands)), key=self.loads.__getitem__)
            busiest = order[-1]
            if self.loads[busiest] * len(self.hands) <= sum(self.loads) * EVEN:
                return
            if not any(self._relieve(busiest, other) for other in order[:TRIES]):
                return

    def _relieve(self, busiest: int, other: int) -> bool:
        """Whether something changed places."""
        gap = self.loads[busiest] - self.loads[other]
        for dear, cheap in islice(product(self.hands[busiest], self.hands[other]), TRIES):
            pair = self._best_pair(dear, cheap, gap)
            if pair is not None:
                moved = self._exchange(dear, cheap, *pair)
                self.loads[busiest] -= moved
                self.loads[other] += moved
                return True
        return False

    def _exchange(self, dear: list[int], cheap: list[int], given: int, taken: int | None) -> int:
        """The work that went over."""
        dear.remove(given)
        cheap.append(given)
        if taken is None:
            return self.works[given]
        cheap.remove(taken)
        dear.append(taken)
        return self.works[given] - self.works[taken]

    def _best_pair(self, dear: Sequence[int], cheap: Sequence[int], gap: int) -> tuple[int, int | None] | None:
        """What `dear` gives, and what it takes (None: nothing), so that half the gap goes over as nearly as can be."""
        free = self.room - sum(map(self.sizes.__getitem__, cheap))
        nothing = [None] if not self.most or len(cheap) < self.most else []
        partners: list[int | None] = [*nothing, *sorted(cheap, key=self.works.__getitem__)]
        works = [0 if partner is None else self.works[partner] for partner in partners]
        sizes = [0 if partner is None else self.sizes[partner] for partner in partners]
        least, pair = gap, None
        for given in dear:
            place = bisect_left(works, self.works[given] - gap // 2)
            for i in range(max(0, place - 1), min(place + 1, len(works))):
                gap_left = abs(gap - 2 * (self.works[given] - works[i]))
                if gap_left < least and self.sizes[given] - sizes[i] <= free:
                    least, pair = gap_left, (given, partners[i])
        return pair
