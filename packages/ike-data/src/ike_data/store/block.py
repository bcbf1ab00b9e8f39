"""What a few rows gave, packed into arrays: what a worker hands back, and what is appended to a store."""

import math
from array import array
from collections.abc import Iterable, Mapping
from itertools import compress, count, pairwise
from operator import ne
from typing import Any

import attrs
import orjson

from ike_core.batch import weigh
from ike_core.examples import AnyExample, Comparison, Example, LabelledExample, Segment, Weights
from ike_data.ledger import Entry, Tally

NUMBERS: Mapping[str, str] = {
    "tokens": "i",  # "H" where all of the store are below 2^16
    "run_tokens": "i",  # of every run of tokens with one weight: how many
    "run_weights": "f",
    "segment_scores": "d",  # nan: none
    "kinds": "B",  # place in KINDS
    "row_weights": "d",
    "extras": "d",  # a Comparison's margin; whether a LabelledExample is desirable
    "supervised": "d",  # the 'tokens' of `weigh`
    "rows": "q",  # which row of the files an example comes from
    "texts": "B",  # [source, fields] as JSON, end to end
}
"""Column -> typecode."""
COUNTS: Mapping[str, str] = {
    "segments": "tokens",
    "segment_runs": "run_tokens",
    "examples": "segment_scores",
    "example_texts": "texts",
}
"""Column -> the column whose numbers it counts, for every segment or example. In a store it holds, from 0 on, where
each one's begin, and last where they end."""
KINDS = (Example, Comparison, LabelledExample)
NARROW = "H"
NARROW_BELOW = 1 << 16


@attrs.frozen
class Block:
    """Rows, processed."""

    rows: int
    """How many."""
    unusable: int
    """How many of them gave nothing to learn from."""
    numbers: Mapping[str, "array[Any]"]
    """By the columns of NUMBERS and COUNTS."""
    entries: tuple[Entry, ...]
    """For the ledger."""
    shapes: Mapping[str, int]
    """Name of a shape -> rows that were read as one."""

    def add_to(self, tally: Tally) -> None:
        """Counts all of it."""
        tally.rows += self.rows
        tally.unusable += self.unusable
        tally.examples += len(self.numbers["kinds"])
        tally.tokens += len(self.numbers["tokens"])
        tally.largest_token = max(tally.largest_token, max(self.numbers["tokens"], default=0))
        tally.supervised += sum(self.numbers["supervised"])
        tally.count(self.entries)
        tally.count_shapes(self.shapes)


@attrs.frozen
class Packer:
    """Appends examples to arrays."""

    numbers: Mapping[str, Any] = attrs.field(
        factory=lambda: {**{n: array(c) for n, c in NUMBERS.items()}, **{n: array("q") for n in COUNTS}}
    )

    def add(self, example: AnyExample, row: int) -> None:
        """TypeError, ValueError or OverflowError where it holds what a column or JSON has no word for."""
        text = orjson.dumps([example.source, dict(example.fields)])
        segments = tuple(_plain(segment) for segment in segments_of(example))
        kind, extra = _kind(example)
        numbers = self.numbers
        for segment in segments:
            ends = run_ends(segment.weights)
            numbers["tokens"].extend(segment.tokens)
            numbers["run_tokens"].extend(end - start for start, end in pairwise((0, *ends)))
            numbers["run_weights"].extend(segment.weights[end - 1] for end in ends)
            numbers["segment_scores"].append(math.nan if segment.score is None else segment.score)
            numbers["segments"].append(len(segment.tokens))
            numbers["segment_runs"].append(len(ends))
        numbers["kinds"].append(kind)
        numbers["row_weights"].append(example.weight)
        numbers["extras"].append(extra)
        numbers["supervised"].append(weigh([rebuilt(kind, segments, extra, weight=example.weight)])["tokens"])
        numbers["rows"].append(row)
        numbers["texts"].frombytes(text)
        numbers["examples"].append(len(segments))
        numbers["example_texts"].append(len(text))

    def block(self, *, rows: int, unusable: int, entries: Iterable[Entry], shapes: Mapping[str, int]) -> Block:
        """What was added, tokens in 2 bytes where they fit."""
        tokens = self.numbers["tokens"]
        narrow = array(NARROW, tokens) if not tokens or max(tokens) < NARROW_BELOW else tokens
        return Block(rows, unusable, {**self.numbers, "tokens": narrow}, tuple(entries), shapes)


def run_ends(weights: Weights) -> list[int]:
    """Where runs of one weight end: [0, 0, 1] -> [2, 3]."""
    if not weights:
        return []
    return [*compress(count(1), map(ne, weights, weights[1:])), len(weights)]


def rebuilt(kind: int, segments: tuple[Segment, ...], extra: float, **row: Any) -> AnyExample:
    """The example of columns; `row` takes weight, source, index and fields."""
    if kind == 0:
        return Example(segments, **row)
    if KINDS[kind] is Comparison:
        return Comparison(segments[0], segments[1:], margin=extra, **row)
    return LabelledExample(segments[0], segments[1], desirable=bool(extra), **row)


def segments_of(example: AnyExample) -> tuple[Segment, ...]:
    """An example's segments in the order in which they are stored."""
    if isinstance(example, Example):
        return example.segments
    return (example.trunk, *example.branches)


def _kind(example: AnyExample) -> tuple[int, float]:
    """Place in KINDS, and the number that goes with it."""
    if isinstance(example, Comparison):
        return 1, example.margin
    if isinstance(example, LabelledExample):
        return 2, float(example.desirable)
    return 0, 0.0


def _plain(segment: Segment) -> Segment:
    """As the store gives it back: float32 weights. ValueError where an id is negative, OverflowError from 2^31 on."""
    tokens = array("i", segment.tokens)
    if tokens and min(tokens) < 0:
        raise ValueError(f"token {min(tokens)}; ids start at 0")
    return Segment(tokens, array("f", segment.weights), segment.score)
