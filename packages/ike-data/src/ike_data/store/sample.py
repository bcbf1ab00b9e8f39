"""Which rows are kept as they were read: 20 of any number, evenly spread, known without knowing how many will come."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson

ROWS = 20
"""Processed afresh at each start."""


@attrs.frozen
class SampledRow:
    """A row as it was read."""

    row: int
    """Its number."""
    source: str
    record: Any


def is_sampled(row: int, rows: int) -> bool:
    """Whether it is one of 20 to 40 rows spread evenly over `rows` rows; who is so for more rows is so for fewer.

    >>> [row for row in range(100) if is_sampled(row, 100)][:4]
    [0, 4, 8, 12]
    """
    stride = 1 << max(0, ((rows - 1) // ROWS).bit_length() - 1)
    return row % stride == 0


def spread(rows: int) -> list[int]:
    """At most 20 of so many rows, evenly."""
    count = min(ROWS, rows)
    return [place * rows // count for place in range(count)]


def read_sample(path: Path, rows: int) -> Iterator[SampledRow]:
    """At most 20 rows of a store of so many, evenly spread."""
    with path.open("rb") as file:
        lines = [line for line in file if is_sampled(int(line[1 : line.index(b",")]), rows)]
    for place in spread(len(lines)):
        yield SampledRow(*orjson.loads(lines[place]))
