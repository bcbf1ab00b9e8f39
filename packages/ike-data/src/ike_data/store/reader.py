"""Examples on disk, mapped by every rank of the host: tokens end to end, and columns that say where.

A folder holds one file a column (see `ike_data.store.block`). An example's segments follow one another: an Example's in
order, a Comparison's trunk and then its branches, a LabelledExample's prompt and answer.
"""

import math
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Any

import attrs
import orjson

from ike_core.examples import AnyExample, Comparison, Segment
from ike_data.store.block import KINDS, rebuilt
from ike_data.store.columns import Column, map_column
from ike_data.store.manifest import Manifest

_ZERO, _ONE = array("f", [0.0]), array("f", [1.0])


@attrs.frozen(eq=False, kw_only=True)
class Store:
    """A store, mapped. Fields are the columns of `ike_data.store.block`."""

    folder: Path
    manifest: Manifest
    tokens: Column
    run_tokens: Column
    run_weights: Column
    segment_scores: Column
    kinds: Column
    row_weights: Column
    extras: Column
    supervised: Column
    rows: Column
    texts: Column
    segments: Column
    segment_runs: Column
    examples: Column
    example_texts: Column

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """DataError where it is not whole: columns are missing, or longer or shorter than it says."""
        manifest = Manifest.read(folder)
        manifest.check_sizes(folder)
        columns = {name: map_column(folder / file.name, file.typecode) for name, file in manifest.columns.items()}
        return cls(folder=folder, manifest=manifest, **columns)

    def __len__(self) -> int:
        return len(self.kinds)

    def example(self, place: int, *, index: int) -> AnyExample:
        """The example at a place of the store, called `index`; its tokens are a view."""
        starts = self.example_texts
        source, fields = orjson.loads(self.texts[starts[place] : starts[place + 1]])
        first, end = self.examples[place], self.examples[place + 1]
        return rebuilt(
            self.kinds[place],
            tuple(self._segment(number) for number in range(first, end)),
            self.extras[place],
            weight=self.row_weights[place],
            source=source,
            index=index,
            fields=fields,
        )

    def size(self, place: int) -> int:
        """Tokens of an example, the trunk once."""
        starts, examples = self.segments, self.examples
        return int(starts[examples[place + 1]] - starts[examples[place]])

    def is_pair(self, place: int) -> bool:
        """Whether it is a Comparison."""
        return KINDS[self.kinds[place]] is Comparison

    def places(self, row: int) -> range:
        """Where the examples of a row of the files are."""
        return range(bisect_left(self.rows, row), bisect_left(self.rows, row + 1))

    def _segment(self, number: int) -> Segment:
        tokens = self.tokens[self.segments[number] : self.segments[number + 1]]
        score = self.segment_scores[number]
        return Segment(tokens, self._weights(number), None if math.isnan(score) else score)

    def _weights(self, number: int) -> "array[float]":
        runs = slice(self.segment_runs[number], self.segment_runs[number + 1])
        weights = array("f")
        for weight, length in zip(self.run_weights[runs], self.run_tokens[runs], strict=True):
            weights += (_ONE if weight == 1.0 else array("f", [weight]) if weight else _ZERO) * length
        return weights


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
        pairs: Any = self.store.is_pair(place)
        return {"tokens": self.store.supervised[place], "examples": 1.0, "pairs": float(pairs)}
