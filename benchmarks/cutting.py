"""How evenly, how tightly and how fast a step is cut: `python benchmarks/cutting.py LENGTHS`.

LENGTHS is a file of integers, one a line: tokens of an example. Without it, a million lengths as of conversations
(lognormal, median 245, at most 2048).
"""

import math
import random
import sys
import time
from pathlib import Path

from ike_core.best_fit import best_fit
from ike_core.cutting import Ceiling, cost, cut


def main(*files: str) -> None:
    """Prints one line a question."""
    draw = random.Random(0)
    if files:
        lengths = [int(line) for file in files for line in Path(file).read_text(encoding="utf-8").split()]
    else:
        lengths = [min(2048, math.ceil(draw.lognormvariate(5.5, 0.8))) for _ in range(10**6)]
    even(lengths, draw)
    for ceiling in (Ceiling(8192), Ceiling(2048), Ceiling(8192, 8), Ceiling(8192, pads=True)):
        fast(draw.choices(lengths, k=10**5), ceiling)
    pack(draw.choices(lengths, k=10**6))


def even(lengths: list[int], draw: random.Random) -> None:
    """Busiest rank over the mean of the stated cost, 64 examples on 8 ranks."""
    ratios = sorted(_busiest(draw.sample(lengths, 64), 8) for _ in range(300))
    print(f"64 on 8 ranks: busiest / mean {ratios[150]:.4f} (median), {ratios[-1]:.4f} (worst of 300)")


def _busiest(sizes: list[int], ranks: int) -> float:
    made = cut(sizes, ranks, Ceiling(8192))
    loads = [sum(cost(sizes[position]) for micro in hand for position in micro) for hand in made]
    return max(loads) * ranks / sum(loads)


def fast(sizes: list[int], ceiling: Ceiling) -> None:
    """A step of 10^5 examples on 8 ranks."""
    start = time.perf_counter()
    made = cut(sizes, 8, ceiling)
    seconds = time.perf_counter() - start
    least = math.ceil(sum(sizes) / ceiling.tokens / 8)
    print(f"{ceiling}: {seconds:.3f} s; {len(made[0])} micro-batches a rank, their tokens alone need {least}")


def pack(sizes: list[int]) -> None:
    """A million sequences, best fit."""
    start = time.perf_counter()
    bins = best_fit(sizes, 2048)
    seconds = time.perf_counter() - start
    print(f"best fit of {len(sizes):,}: {seconds:.3f} s, {sum(sizes) / (2048 * len(bins)):.5f} full")


if __name__ == "__main__":
    main(*sys.argv[1:])
