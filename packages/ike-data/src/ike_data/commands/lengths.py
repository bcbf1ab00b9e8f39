"""How long examples are: numbers and bars."""

from collections.abc import Iterator, Mapping, Sequence

import attrs

BARS = 16
"""At most."""


@attrs.frozen
class Bar:
    """Examples of `least` to `most` tokens."""

    least: int
    most: int
    examples: int


@attrs.frozen
class Lengths:
    """Of all examples, exact: as many numbers as there are different lengths."""

    counts: Mapping[int, int]
    """Tokens -> examples; one at least."""

    @property
    def mean(self) -> float:
        return sum(length * count for length, count in self.counts.items()) / sum(self.counts.values())

    @property
    def longest(self) -> int:
        return max(self.counts)

    def quantile(self, share: float) -> int:
        """The least length that `share` of the examples do not exceed; 0 gives the shortest."""
        wanted = share * sum(self.counts.values())
        reached = 0
        for length in sorted(self.counts):
            reached += self.counts[length]
            if reached >= wanted:
                return length
        return self.longest

    def bars(self) -> Sequence[Bar]:
        """Of one width, a power of two, from the shortest to the longest."""
        width = 1
        while self.longest > width * BARS:
            width *= 2
        return tuple(self._bars(width))

    def _bars(self, width: int) -> Iterator[Bar]:
        """A length of n x width is the last of its bar: 1-128, 129-256."""
        by_bar: dict[int, int] = {}
        for length, count in self.counts.items():
            number = max(0, length - 1) // width
            by_bar[number] = by_bar.get(number, 0) + count
        for number in range(min(by_bar), max(by_bar) + 1):
            yield Bar(number * width + 1, (number + 1) * width, by_bar.get(number, 0))
