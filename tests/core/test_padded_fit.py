"""A comparison that no padded micro-batch can hold is named before the first step."""

from typing import Any

import attrs
import pytest

from ike_core import ConfigError, Example, preference_pair, weigh
from ike_core.cutting import Ceiling
from ike_core.padded_fit import check_padded


@attrs.frozen
class Rows:
    examples: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Any:
        return self.examples[index]

    def size(self, index: int) -> int:
        return len(self.examples[index])

    def weights(self, index: int) -> dict[str, float]:
        return weigh([self.examples[index]])


@attrs.frozen
class OneOfTwo:
    """Another rank beside this one, which has found something."""

    rank: int
    found: Any = None
    size: int = 2

    def gather(self, value: Any) -> list[Any]:
        return [value, self.found]


def pair(prompt: int, answer: int, name: str) -> Any:
    return attrs.evolve(preference_pair([1] * prompt, [2] * answer, [3] * answer), source=name)


ROWS = Rows((Example.of([1] * 90, [1.0] * 90), pair(8, 2, "a:2"), pair(30, 20, "a:3"), pair(31, 20, "a:4")))
"""Padded: 90, 2 x 10, 2 x 50 and 2 x 51 tokens."""


def test_a_tree_counts_its_trunk_once_a_branch() -> None:
    check_padded({"train": ROWS}, Ceiling(102, pads=True), OneOfTwo(0))
    check_padded({"train": ROWS}, Ceiling(99), OneOfTwo(0))  # packed, 70 and 71
    for ceiling, rank in ((99, 0), (101, 1)):
        with pytest.raises(ConfigError) as refused:
            check_padded({"train": ROWS}, Ceiling(ceiling, pads=True), OneOfTwo(rank))
        row, size = ("a:3", 50) if rank == 0 else ("a:4", 51)
        assert str(refused.value).startswith(
            f"{row}: batch.tokens_per_device = {ceiling} can't hold this row of the train data, which padded takes "
            f"2 rows of {size} tokens; raise it to {2 * size}, "
        )


def test_every_rank_is_told_the_same_row() -> None:
    with pytest.raises(ConfigError, match=r"^a:3: "):
        check_padded({"train": ROWS}, Ceiling(99, pads=True), OneOfTwo(1, found=[2, "a:3", 2, 50]))
