"""Several datasets as one: the second's examples come after the first's."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

import attrs

from ike_core.examples import AnyExample
from ike_core.interfaces import Dataset


@attrs.frozen(eq=False)
class MixedDataset:
    """A `Dataset`; an example's index counts through all of them."""

    parts: Mapping[str, Dataset]
    """By name of the source."""
    _starts: tuple[int, ...] = attrs.field(init=False)
    """Index of each one's first example, and how many there are."""
    _datasets: tuple[Dataset, ...] = attrs.field(init=False)
    _names: tuple[str, ...] = attrs.field(init=False)

    @_starts.default
    def _from_sizes(self) -> tuple[int, ...]:
        return tuple(accumulate(map(len, self.parts.values()), initial=0))

    @_datasets.default
    def _in_order(self) -> tuple[Dataset, ...]:
        return tuple(self.parts.values())

    @_names.default
    def _named(self) -> tuple[str, ...]:
        return tuple(self.parts)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> AnyExample:
        dataset, place = self._at(index)
        return attrs.evolve(dataset[place], index=index if index >= 0 else index + len(self))

    def size(self, index: int) -> int:
        """Tokens of an example, the trunk once."""
        dataset, place = self._at(index)
        return dataset.size(place)

    def weights(self, index: int) -> Mapping[str, float]:
        """`weigh([self[index]])`, known beforehand."""
        dataset, place = self._at(index)
        return dataset.weights(place)

    def source_of(self, index: int) -> str:
        """The name of the source that an example is from."""
        return self._names[self._number(index)]

    def _at(self, index: int) -> tuple[Dataset, int]:
        if index < 0:
            index += len(self)
        number = self._number(index)
        return self._datasets[number], index - self._starts[number]

    def _number(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return bisect_right(self._starts, index) - 1
