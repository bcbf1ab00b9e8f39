"""What must be known of examples that are read in place, without reading them again: measured once, into columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from ike_core.batch import weigh
from ike_core.examples import Skip
from ike_core.interfaces import Source
from ike_data.building import Preparation
from ike_data.in_place import InPlace, example_at, fitted
from ike_data.ledger import Entry, Tally, lines_of
from ike_data.sources.megatron import MegatronIndex
from ike_data.sources.token_array import TokenArray
from ike_data.sources.token_documents import largest
from ike_data.store.block import segments_of
from ike_data.store.columns import ColumnFile
from ike_data.store.hashing import hash_file
from ike_data.store.manifest import FileFacts, Manifest

ENTRIES = "entries.jsonl"
MEASURED = 1 << 16
"""Examples between two signs of life."""
TYPECODES = {"rows": "q", "sizes": "q", "supervised": "d", "pairs": "d"}


def measure(
    sources: tuple[Source, ...],
    preparation: Preparation,
    folder: Path,
    *,
    limit: int,
    description: Mapping[str, Any],
    progress: Callable[[Tally], None],
) -> None:
    """Writes what `InPlace.open` maps; `limit` is of examples, 0: all. DataError where one can't be read."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {name: ColumnFile.open(folder / name, typecode) for name, typecode in TYPECODES.items()}
    tally = Tally()
    with (folder / ENTRIES).open("wb") as ledger:
        for measured in _measured(sources, preparation, limit):
            tally.rows += 1
            if not tally.rows % MEASURED:
                progress(tally)
            entries = [measured.entry] if measured.entry else []
            tally.count(entries)
            ledger.writelines(lines_of(entries))
            if not measured.size:
                tally.unusable += 1
                continue
            tally.examples += 1
            tally.tokens += measured.size
            tally.supervised += measured.supervised
            tally.largest_token = max(tally.largest_token, measured.largest)
            columns["rows"].append(tally.rows - 1)
            columns["sizes"].append(measured.size)
            columns["supervised"].append(measured.supervised)
            columns["pairs"].append(measured.pairs)
    for column in columns.values():
        column.sync()
        column.close()
    facts = {name: _facts(folder / name, typecode) for name, typecode in TYPECODES.items()}
    manifest = Manifest(
        columns=facts, others={ENTRIES: _facts(folder / ENTRIES, "B")}, tally=tally, description=description
    )
    manifest.write(folder)
    tally.largest_token = max(tally.largest_token, _largest_mapped(InPlace.open(folder, sources, preparation)))
    manifest.write(folder)


def _facts(path: Path, typecode: str) -> FileFacts:
    return FileFacts(path.name, typecode, path.stat().st_size, hash_file(path))


def _largest_mapped(examples: InPlace) -> int:
    """The highest id in token indexes, of which only what is kept counts. DataError for one below 0."""
    indexes = [source for source in examples.sources if isinstance(source, (MegatronIndex, TokenArray))]
    if examples.tally.tokens == sum(len(index.tokens) for index in indexes):
        return max((largest(index.tokens, called=index.name) for index in indexes), default=0)
    kept = (examples.example(place, index=place) for place in range(len(examples) if indexes else 0))
    return max(
        (largest(part.tokens, called=example.source) for example in kept for part in segments_of(example)), default=0
    )


@attrs.frozen
class _Measured:
    """One example."""

    size: int
    """0: it is not kept."""
    supervised: float = 0.0
    pairs: float = 0.0
    largest: int = 0
    """Token; 0: it is not looked at yet."""
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
    example = example_at(source, index)
    kept, unused = fitted(example, preparation)
    if isinstance(kept, Skip):
        return _Measured(0, entry=Entry(example.source, kept.reason, tokens=unused))
    cut = f"{preparation.too_long}: {len(example)} tokens"
    entry = Entry(example.source, cut, "truncated", unused) if unused else None
    weights = weigh([kept])
    ids = () if isinstance(source, (MegatronIndex, TokenArray)) else (segment.tokens for segment in segments_of(kept))
    highest = max((max(part) for part in ids if len(part)), default=0)
    return _Measured(len(kept), weights["tokens"], weights["pairs"], highest, entry)
