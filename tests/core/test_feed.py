"""What reaches a rank: its share of a step, under the ceilings that its rows really take."""

from collections.abc import Sequence
from typing import Any

import attrs

from ike_core.batch import Batch, weigh
from ike_core.cutting import Ceiling
from ike_core.examples import AnyExample, Comparison, Segment
from ike_core.feed import Batches


@attrs.frozen
class Alone:
    """The part of a World that a feed asks on one process."""

    rank: int = 0
    replicas: int = 1


def pair(trunk: int, *branches: int) -> Comparison:
    return Comparison(Segment.prompt(range(trunk)), tuple(Segment.answer(range(branch)) for branch in branches))


def made(examples: Sequence[AnyExample], ceiling: Ceiling, world: Any) -> list[list[int]]:
    batches = Batches(lambda rows: Batch({}, weigh(rows)), ceiling, world, counts_as_weigh=True)
    sizes = [len(example) for example in examples]
    return [list(micro.positions) for micro in batches.make(examples.__getitem__, sizes)]


def test_a_padded_comparison_takes_a_row_a_branch_with_its_trunk_repeated() -> None:
    """Trunk 8, branches 2 and 1: 11 tokens as a tree, and two padded rows of 10. Three pairs are 60, not 33."""
    pairs = [pair(8, 2, 1) for _ in range(3)]
    assert made(pairs, Ceiling(40), Alone()) == [[0, 1, 2]]
    assert made(pairs, Ceiling(40, pads=True), Alone()) == [[0, 1], [2]]
