"""Which rows are kept from training: a function of the seed and of how many rows there are."""

from heapq import nsmallest

from ike_core.errors import DataError
from ike_core.interfaces import Holdout
from ike_core.randomness import key, mix

_PURPOSE = key("holdout")


def held_out_rows(rows: int, holdout: Holdout) -> frozenset[int]:
    """`holdout.count` of the rows 0..rows-1, or its share of them, rounded; the same on every machine.

    Every row, usable or not, has a number that depends on the seed and its place alone; the smallest are drawn.
    """
    count = holdout.count or round(holdout.share * rows)
    if not 0 < count < rows:
        said = f"count = {holdout.count}" if holdout.count else f"share = {holdout.share}"
        raise DataError(f"data.holdout.{said} keeps {count} of {rows} rows; it must keep at least one, and leave one")
    return frozenset(nsmallest(count, range(rows), key=lambda row: mix(holdout.seed, _PURPOSE, row)))
