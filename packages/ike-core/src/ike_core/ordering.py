"""Which examples make a step: a function of (seed, step), not a state.

An epoch's order is a keyed permutation of the set, computed index by index: a Feistel network over the smallest grid
a x b that holds the set, walked until it lands inside (Black and Rogaway 2002, "Ciphers with arbitrary finite
domains"). No list of the set is made, and any step is reached in the same time.
"""

import math
from array import array
from collections.abc import Sequence
from functools import lru_cache

import attrs

from ike_core.errors import ConfigError
from ike_core.randomness import absorb, mix

ROUNDS = 8
"""Of the network; 4 would do for a cipher with an ideal round function, and the round function here is a cheap mix."""
SMALL = 4096
"""Below, halves of the grid are too small for an even mix, and a shuffled table is at most 16 KiB."""


@attrs.frozen
class Permutation:
    """A bijection of range(size) that depends on `key`; `permutation[i]` costs O(1) time and memory."""

    size: int
    key: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        if self.size < SMALL:
            return _shuffled(self.size, self.key)[index]
        value = self._scramble(index)
        while value >= self.size:
            value = self._scramble(value)
        return value

    def _scramble(self, value: int) -> int:
        """A bijection of range(a * b), a * b >= size."""
        rows = math.isqrt(self.size - 1) + 1
        columns = -(-self.size // rows)
        left, right = divmod(value, columns)
        states = _rounds(self.key)
        for turn in range(0, ROUNDS, 2):
            left = (left + absorb(states[turn], right)) % rows
            right = (right + absorb(states[turn + 1], left)) % columns
        return left * columns + right


@lru_cache(maxsize=64)
def _rounds(key: int) -> Sequence[int]:
    """mix(key, round) of each, which a round's input is absorbed into."""
    return [mix(key, turn) for turn in range(ROUNDS)]


@lru_cache(maxsize=8)
def _shuffled(size: int, key: int) -> Sequence[int]:
    """Fisher and Yates' shuffle, Durstenfeld's form."""
    order = array("i", range(size))
    for last in range(size - 1, 0, -1):
        other = mix(key, last) % (last + 1)
        order[last], order[other] = order[other], order[last]
    return order


@attrs.frozen
class Ordering:
    """Cuts the epochs of a set into steps. The last step of an epoch holds what is left: no drop, no repeat."""

    size: int
    """Examples in the set."""
    examples_per_step: int
    seed: int

    def __attrs_post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError("the training set has no examples; see the ledger for what became of its rows")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.size // self.examples_per_step)

    def steps(self, *, epochs: float) -> int:
        """Steps of so many epochs, rounded to the nearest, at least 1."""
        return max(1, round(epochs * self.steps_per_epoch))

    def epoch(self, step: int) -> float:
        """Epochs done after `step` steps."""
        whole, rest = divmod(step, self.steps_per_epoch)
        return whole + rest * self.examples_per_step / self.size

    def examples(self, step: int) -> list[int]:
        """Indices of the examples that step `step` (from 0) learns from, alike on every rank and world size."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = Permutation(self.size, mix(self.seed, epoch))
        first = position * self.examples_per_step
        return [order[i] for i in range(first, min(first + self.examples_per_step, self.size))]
