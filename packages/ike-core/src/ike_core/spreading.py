"""Sequences over a given number of bins, so that none takes longer than it must."""

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace


def spread(
    sizes: Sequence[int], works: Sequence[int], count: int, room: int, *, most: int = 0
) -> list[list[int]] | None:
    """Positions in `count` bins of at most `room` tokens and `most` sequences; None where one fits nowhere.

    Longest first, each into the bin with the least work that takes it (Graham 1969: the busiest has at most 4/3 of the
    best possible).
    """
    bins: list[list[int]] = [[] for _ in range(count)]
    rooms = [room] * count
    open_bins = list(range(count))  # a heap of work x count + bin: integers, which compare fast
    narrow: list[tuple[int, int]] = []  # those that can't take the sequence in hand, the roomiest first
    for position in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        size = sizes[position]
        while narrow and -narrow[0][0] >= size:
            heappush(open_bins, heappop(narrow)[1])
        while open_bins and rooms[open_bins[0] % count] < size:
            entry = heappop(open_bins)
            heappush(narrow, (-rooms[entry % count], entry))
        if not open_bins:
            return None
        entry = open_bins[0]
        number = entry % count
        chosen = bins[number]
        chosen.append(position)
        rooms[number] -= size
        if len(chosen) == most:
            heappop(open_bins)
        else:
            heapreplace(open_bins, entry + works[position] * count)
    return bins
