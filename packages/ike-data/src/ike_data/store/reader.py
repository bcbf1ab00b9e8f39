"""Examples on disk, mapped by every rank of the host: tokens end to end, and columns that say where.

A folder holds one file a column (see `ike_data.store.block`). An example's segments follow one another: an Example's in
order, a Comparison's trunk and then its branches, a LabelledExample's prompt and answer.
"""

from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Protocol

import attrs
import orjson

from ike_core.examples import AnyExample, Comparison, Example, Segment
from ike_data.ledger import Tally
from ike_data.store.block import KINDS, rebuilt
from ike_data.store.columns import Column, map_column
from ike_data.store.manifest import Manifest

_RUNS = {weight: array("f", [weight]) for weight in (0.0, 1.0)}
_EMPTY = array("f")


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

    @property
    def tally(self) -> Tally:
        """What was counted while it was made."""
        return self.manifest.tally

    def example(self, place: int, *, index: int) -> AnyExample:
        """The example at a place of the store, called `index`; its tokens are a view."""
        texts, examples = self.example_texts, self.examples
        source, fields = orjson.loads(self.texts[texts[place] : texts[place + 1]])
        first, end = examples[place], examples[place + 1]
        segments = (self._segment(first),) if end - first == 1 else tuple(map(self._segment, range(first, end)))
        weight, kind = self.row_weights[place], self.kinds[place]
        if not kind:  # most are Examples, and a call less is a tenth of the time
            return Example(segments, source=source, index=index, weight=weight, fields=fields)
        extra = self.extras[place]
        return rebuilt(kind, segments, extra, weight=weight, source=source, index=index, fields=fields)

    def size(self, place: int) -> int:
        """Tokens of an example, the trunk once."""
        starts, examples = self.segments, self.examples
        return int(starts[examples[place + 1]] - starts[examples[place]])

    def pair_weight(self, place: int) -> float:
        """The row's weight where it is a Comparison, else 0."""
        return float(self.row_weights[place]) if KINDS[self.kinds[place]] is Comparison else 0.0

    def places(self, row: int) -> range:
        """Where the examples of a row of the files are."""
        return range(bisect_left(self.rows, row), bisect_left(self.rows, row + 1))

    def _segment(self, number: int) -> Segment:
        starts, score = self.segments, self.segment_scores[number]
        tokens = self.tokens[starts[number] : starts[number + 1]]
        return Segment(tokens, self._weights(number), None if score != score else score)

    def _weights(self, number: int) -> "array[float]":
        first, end = self.segment_runs[number], self.segment_runs[number + 1]
        lengths, values = self.run_tokens, self.run_weights
        weights = _EMPTY[:]
        for run in range(first, end):
            value = values[run]
            weights += (_RUNS.get(value) or array("f", [value])) * lengths[run]
        return weights


class Examples(Protocol):
    """A store, or examples that are read where they are."""

    @property
    def folder(self) -> Path: ...

    @property
    def tally(self) -> Tally: ...

    @property
    def supervised(self) -> Column: ...

    def __len__(self) -> int: ...

    def example(self, place: int, *, index: int) -> AnyExample: ...

    def size(self, place: int) -> int: ...

    def pair_weight(self, place: int) -> float: ...

    def places(self, row: int) -> range: ...


@attrs.frozen(eq=False)
class StoredDataset:
    """A `Dataset` of ike_core.interfaces: the examples of a store, or a selection of them."""

    store: Examples
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
            "tokens": self.store.supervised[place],
            "examples": 1.0,
            "pairs": self.store.pair_weight(place),
        }
