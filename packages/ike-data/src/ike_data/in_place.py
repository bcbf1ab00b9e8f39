"""Examples that are read where they are: token indexes, and a user's Source of examples. No store is made of them.

What must be known without reading them (which fit, how long they are, how much of them is learned) is measured into
columns (see `ike_data.measures` for how long they last).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import attrs

from ike_core.errors import DataError
from ike_core.examples import AnyExample, Comparison, Example, LabelledExample, Skip
from ike_core.interfaces import Source
from ike_data.building import Preparation
from ike_data.ledger import Tally
from ike_data.lengths import fit
from ike_data.source_rows import own_source
from ike_data.sources.formats import TOKEN_INDEXES
from ike_data.sources.opening import open_source
from ike_data.sources.paths import find_files
from ike_data.store.columns import Column, map_column
from ike_data.store.manifest import Manifest


def examples_in(files: Sequence[str] | Source) -> tuple[Source, ...]:
    """Sources whose examples are taken as they are; none where there are rows, which a processor reads.

    DataError where `files` name token indexes and rows together.
    """
    source = own_source(files)
    if source is not None:
        is_made = len(source) > 0 and isinstance(source[0], (Example, Comparison, LabelledExample))
        return (source,) if is_made else ()
    if not isinstance(files, (list, tuple)):  # a stream, which gives rows
        return ()
    found = find_files(files)
    indexes = [file for file in found if file.format in TOKEN_INDEXES]
    if indexes and len(indexes) < len(found):
        other = next(file for file in found if file.format not in TOKEN_INDEXES)
        raise DataError(f"{indexes[0].path} holds tokens and {other.path} holds rows: make them two sources")
    return tuple(open_source(file) for file in indexes)


@attrs.frozen(eq=False, kw_only=True)
class InPlace:
    """Examples of sources, one source after the other."""

    folder: Path
    sources: tuple[Source, ...]
    preparation: Preparation
    """Of which the length policy counts."""
    tally: Tally
    rows: Column
    """Of every example kept: its place in the sources."""
    sizes: Column
    """Its tokens, as it is kept."""
    supervised: Column
    pairs: Column

    @classmethod
    def open(cls, folder: Path, sources: tuple[Source, ...], preparation: Preparation) -> "InPlace":
        """What `measure` has found. DataError where it is not whole."""
        manifest = Manifest.read(folder)
        manifest.check_sizes(folder)
        columns = {name: map_column(folder / file.name, file.typecode) for name, file in manifest.columns.items()}
        return cls(folder=folder, sources=sources, preparation=preparation, tally=manifest.tally, **columns)

    def __len__(self) -> int:
        return len(self.rows)

    def example(self, place: int, *, index: int) -> AnyExample:
        """Read from its source, and cut where it is too long."""
        row = self.rows[place]
        number = bisect_right(self._starts, row) - 1
        given = example_at(self.sources[number], row - self._starts[number])
        if len(given) != self.sizes[place]:
            short, _ = fitted(given, self.preparation)
            if isinstance(short, Skip) or len(short) != self.sizes[place]:
                raise DataError(f"{given.source}: it has {len(given)} tokens, which it had not at the start of the run")
            given = short
        return attrs.evolve(given, index=index)

    def size(self, place: int) -> int:
        """Tokens of an example, the trunk once."""
        return int(self.sizes[place])

    def pair_weight(self, place: int) -> float:
        """The row's weight where it is a Comparison, else 0."""
        return float(self.pairs[place])

    def places(self, row: int) -> range:
        """Where the example of a row is, if it is kept."""
        return range(bisect_left(self.rows, row), bisect_left(self.rows, row + 1))

    @property
    def _starts(self) -> list[int]:
        return list(accumulate(map(len, self.sources), initial=0))[:-1]


def example_at(source: Source, index: int) -> AnyExample:
    """With a name of its source. DataError where it is none."""
    example = source[index]
    kind = type(source).__name__
    if not isinstance(example, (Example, Comparison, LabelledExample)):
        raise DataError(f"{kind}[{index}] is a {type(example).__name__}, and {kind}[0] is an example: one or the other")
    return example if example.source else attrs.evolve(example, source=f"{kind}[{index}]")


def fitted(example: AnyExample, preparation: Preparation) -> tuple[AnyExample | Skip, int]:
    """By the length policy; and how many of its tokens are not used."""
    return fit(example, max_tokens=preparation.max_tokens, too_long=preparation.too_long)
