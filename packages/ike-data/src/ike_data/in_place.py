"""Examples that are read where they are: token indexes, and a user's Source of examples. No store is made of them.

What must be known without reading them (which fit, how long they are, how much of them is learned) is measured once a
run, into columns in its folder.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import attrs
import orjson

from ike_core.batch import weigh
from ike_core.errors import DataError
from ike_core.examples import AnyExample, Comparison, Example, LabelledExample, Skip
from ike_core.interfaces import Source
from ike_data.building import Preparation
from ike_data.ledger import Entry, Tally, lines_of
from ike_data.lengths import fit
from ike_data.source_rows import own_source
from ike_data.sources.formats import TOKEN_INDEXES
from ike_data.sources.megatron import MegatronIndex
from ike_data.sources.opening import open_source
from ike_data.sources.paths import find_files
from ike_data.sources.token_array import TokenArray
from ike_data.store.atomic import replace
from ike_data.store.columns import Column, ColumnFile, map_column

TALLY, ENTRIES = "tally.json", "entries.jsonl"
_TYPECODES = {"rows": "q", "sizes": "q", "supervised": "d", "pairs": "d"}


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
        """What `measure` has found."""
        columns = {name: map_column(folder / name, typecode) for name, typecode in _TYPECODES.items()}
        tally = Tally.of(orjson.loads((folder / TALLY).read_bytes()))
        return cls(folder=folder, sources=sources, preparation=preparation, tally=tally, **columns)

    def __len__(self) -> int:
        return len(self.rows)

    def example(self, place: int, *, index: int) -> AnyExample:
        """Read from its source, and cut where it is too long."""
        row = self.rows[place]
        number = bisect_right(self._starts, row) - 1
        given = _example(self.sources[number], row - self._starts[number])
        if len(given) != self.sizes[place]:
            fitted, _ = _fitted(given, self.preparation)
            if isinstance(fitted, Skip) or len(fitted) != self.sizes[place]:
                raise DataError(f"{given.source}: it has {len(given)} tokens, which it had not at the start of the run")
            given = fitted
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


def measure(sources: Sequence[Source], preparation: Preparation, folder: Path, *, limit: int) -> None:
    """Writes what `InPlace.open` maps; `limit` is of examples, 0: all. DataError where one can't be read."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {name: ColumnFile.open(folder / name, typecode) for name, typecode in _TYPECODES.items()}
    tally = Tally()
    with (folder / ENTRIES).open("wb") as ledger:
        for measured in _measured(sources, preparation, limit):
            tally.rows += 1
            entries = [measured.entry] if measured.entry else []
            tally.count(entries)
            ledger.writelines(lines_of(entries))
            if not measured.size:
                tally.unusable += 1
                continue
            tally.examples += 1
            tally.tokens += measured.size
            tally.supervised += measured.supervised
            columns["rows"].append(tally.rows - 1)
            columns["sizes"].append(measured.size)
            columns["supervised"].append(measured.supervised)
            columns["pairs"].append(measured.pairs)
    for column in columns.values():
        column.close()
    replace(folder / TALLY, orjson.dumps(attrs.asdict(tally)))


@attrs.frozen
class _Measured:
    """One example."""

    size: int
    """0: it is not kept."""
    supervised: float = 0.0
    pairs: float = 0.0
    entry: Entry | None = None


def _measured(sources: Sequence[Source], preparation: Preparation, limit: int) -> Iterator[_Measured]:
    left = limit or sum(map(len, sources))
    for source in sources:
        for index in range(min(left, len(source))):
            yield _measure_one(source, index, preparation)
        left -= min(left, len(source))


def _measure_one(source: Source, index: int, preparation: Preparation) -> _Measured:
    if isinstance(source, (MegatronIndex, TokenArray)):  # all of a document is learned
        size = source.size(index)
        if size >= 2 and (not preparation.max_tokens or size <= preparation.max_tokens):
            return _Measured(size, size - 1.0)
    example = _example(source, index)
    fitted, unused = _fitted(example, preparation)
    if isinstance(fitted, Skip):
        return _Measured(0, entry=Entry(example.source, fitted.reason, tokens=unused))
    cut = f"{preparation.too_long}: {len(example)} tokens"
    entry = Entry(example.source, cut, "truncated", unused) if unused else None
    weights = weigh([fitted])
    return _Measured(len(fitted), weights["tokens"], weights["pairs"], entry)


def _example(source: Source, index: int) -> AnyExample:
    example = source[index]
    kind = type(source).__name__
    if not isinstance(example, (Example, Comparison, LabelledExample)):
        raise DataError(f"{kind}[{index}] is a {type(example).__name__}, and {kind}[0] is an example: one or the other")
    return example if example.source else attrs.evolve(example, source=f"{kind}[{index}]")


def _fitted(example: AnyExample, preparation: Preparation) -> tuple[AnyExample | Skip, int]:
    return fit(example, max_tokens=preparation.max_tokens, too_long=preparation.too_long)
