"""Examples on disk, mapped by every rank of the host: tokens and weights end to end, and columns that say where.

A folder holds one file a column. An example's segments follow one another: an Example's in order, a Comparison's
trunk and then its branches, a LabelledExample's prompt and answer.
"""

import math
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import orjson

from ike_core.batch import weigh
from ike_core.examples import AnyExample, Comparison, Example, LabelledExample, Segment
from ike_data.columns import Column, ColumnWriter, read_column

COLUMNS: Mapping[str, str] = {
    "tokens": "i",
    "weights": "f",
    "segment_ends": "q",  # of every segment, in tokens
    "segment_scores": "d",  # nan: none
    "example_ends": "q",  # of every example, in segments
    "kinds": "B",  # place in KINDS
    "row_weights": "d",
    "extras": "d",  # a Comparison's margin; whether a LabelledExample is desirable
    "supervised": "d",  # the 'tokens' of `weigh`
    "rows": "q",  # which row of the files an example comes from
    "text_ends": "q",  # of every example, in bytes of the next
    "texts": "B",  # [source, fields] as JSON, end to end
}
"""Name -> typecode of `array`."""
KINDS = (Example, Comparison, LabelledExample)


@attrs.frozen
class StoreWriter:
    """Appends examples to an open store."""

    columns: Mapping[str, ColumnWriter]

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator["StoreWriter"]:
        """A new store in an empty folder; whole when the block ends."""
        with ExitStack() as stack:
            yield cls({name: stack.enter_context(ColumnWriter(folder / name, code)) for name, code in COLUMNS.items()})

    def add(self, example: AnyExample, row: int) -> None:
        """TypeError, ValueError or OverflowError where it holds what a column or JSON has no word for."""
        text = orjson.dumps([example.source, dict(example.fields)])
        segments = tuple(_plain(segment) for segment in _segments(example))
        kind, extra = _kind(example)
        column = self.columns
        for segment in segments:
            column["tokens"].extend(segment.tokens)
            column["weights"].extend(segment.weights)
            column["segment_ends"].append(column["tokens"].length)
            column["segment_scores"].append(math.nan if segment.score is None else segment.score)
        column["example_ends"].append(column["segment_ends"].length)
        column["kinds"].append(kind)
        column["row_weights"].append(example.weight)
        column["extras"].append(extra)
        column["supervised"].append(weigh([_example(kind, segments, extra, weight=example.weight)])["tokens"])
        column["rows"].append(row)
        column["texts"].extend(text)
        column["text_ends"].append(column["texts"].length)


@attrs.frozen(eq=False)
class Store:
    """A store, mapped."""

    columns: Mapping[str, Column]

    @classmethod
    def open(cls, folder: Path) -> "Store":
        return cls({name: read_column(folder / name, code) for name, code in COLUMNS.items()})

    def __len__(self) -> int:
        return len(self.columns["kinds"])

    @property
    def rows(self) -> Column:
        """Which row of the files each example comes from."""
        return self.columns["rows"]

    def example(self, place: int, *, index: int) -> AnyExample:
        """The example at a place of the store, called `index`; tokens and weights are views."""
        column = self.columns
        source, fields = orjson.loads(column["texts"][slice(*_between(column["text_ends"], place))])
        segments = tuple(self._segment(number) for number in range(*_between(column["example_ends"], place)))
        example = _example(
            column["kinds"][place], segments, column["extras"][place], weight=column["row_weights"][place]
        )
        return attrs.evolve(example, source=source, fields=fields, index=index)

    def size(self, place: int) -> int:
        """Tokens of an example, the trunk once."""
        first, last = _between(self.columns["example_ends"], place)
        ends = self.columns["segment_ends"]
        return int(ends[last - 1] - (ends[first - 1] if first else 0))

    def supervised(self, place: int) -> float:
        """Sum of token weight x row weight."""
        return float(self.columns["supervised"][place])

    def is_pair(self, place: int) -> bool:
        """Whether it is a Comparison."""
        return KINDS[self.columns["kinds"][place]] is Comparison

    def _segment(self, number: int) -> Segment:
        part = slice(*_between(self.columns["segment_ends"], number))
        score = self.columns["segment_scores"][number]
        return Segment(
            self.columns["tokens"][part], self.columns["weights"][part], None if math.isnan(score) else score
        )


@attrs.frozen(eq=False)
class StoredDataset:
    """A `Dataset` of ike_core.interfaces: the examples of a store, or a selection of them."""

    store: Store
    places: range | Column
    """Place in the store of every example."""

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> AnyExample:
        return self.store.example(self.places[index], index=index if index >= 0 else index + len(self))

    def size(self, index: int) -> int:
        """Tokens of an example, the trunk once."""
        return self.store.size(self.places[index])

    def weights(self, index: int) -> dict[str, float]:
        """`weigh([self[index]])`, without reading its tokens."""
        place = self.places[index]
        return {
            "tokens": self.store.supervised(place),
            "examples": 1.0,
            "pairs": float(self.store.is_pair(place)),
        }


def _segments(example: AnyExample) -> tuple[Segment, ...]:
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


def _example(kind: int, segments: tuple[Segment, ...], extra: float, *, weight: float) -> AnyExample:
    if KINDS[kind] is Comparison:
        return Comparison(segments[0], segments[1:], margin=extra, weight=weight)
    if KINDS[kind] is LabelledExample:
        return LabelledExample(segments[0], segments[1], desirable=bool(extra), weight=weight)
    return Example(segments, weight=weight)


def _plain(segment: Segment) -> Segment:
    """As the store gives it back: float32 weights. ValueError where an id is negative, OverflowError from 2^31 on."""
    tokens = array("i", segment.tokens)
    if tokens and min(tokens) < 0:
        raise ValueError(f"token {min(tokens)}; ids start at 0")
    return Segment(tokens, array("f", segment.weights), segment.score)


def _between(ends: Column, place: int) -> tuple[int, int]:
    return (ends[place - 1] if place else 0), ends[place]
