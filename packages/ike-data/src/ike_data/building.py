"""Rows to a store, once per host: read, process, fit to the length, write, and account for every row."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import attrs
import orjson

from ike_core.errors import DataError
from ike_core.examples import Skip
from ike_core.interfaces import DataProcessor, Holdout
from ike_data.columns import ColumnWriter
from ike_data.holdout import held_out_rows
from ike_data.ledger import Entry, Ledger
from ike_data.lengths import fit
from ike_data.producing import Yield, produce
from ike_data.rows import Row, read_rows
from ike_data.store import Store, StoreWriter

BLOCK_ROWS = 256
"""Rows a tokenizer is given at once: enough for it to use its threads, few enough to hold."""

KEPT, HELD_OUT = "kept", "held_out"
"""Columns of places in the store; absent where no rows are held out."""
SUMMARY = "summary.json"


@attrs.frozen(kw_only=True)
class Request:
    """What is to be built; see `DatasetReader` of ike_core.interfaces."""

    name: str
    files: Sequence[str]
    processor: DataProcessor
    limit: int
    max_tokens: int
    too_long: str
    budget: float
    holdout: Holdout | None


def build(request: Request, folder: Path, ledger: Ledger, progress: Callable[[int], None]) -> None:
    """The store of a request in an empty folder; `progress` is told the rows read. DataError past the budget."""
    with StoreWriter.open(folder) as writer:
        for block in _blocks(read_rows(request.files, limit=request.limit)):
            for source, items in _produced(request.processor, block):
                ledger.count(_keep(request, writer, source, items, row=ledger.rows))
            ledger.check_early()
            progress(ledger.rows)
    ledger.check(request.budget)
    store = Store.open(folder)
    if request.holdout is not None:
        _split(store, folder, held_out_rows(ledger.rows, request.holdout))
    (folder / SUMMARY).write_bytes(orjson.dumps(_summary(request.name, store, ledger)))


def _keep(request: Request, writer: StoreWriter, source: str, items: Sequence[Yield], *, row: int) -> Iterator[Entry]:
    """Writes what one row gave; yields what goes to the ledger."""
    if not items:
        yield Entry(source, "the processor yielded nothing")
    for item in items:
        if isinstance(item, Skip):
            yield Entry(item.source or source, item.reason)
            continue
        fitted, unused = fit(item, max_tokens=request.max_tokens, too_long=request.too_long)
        if isinstance(fitted, Skip):
            yield Entry(item.source or source, fitted.reason, tokens=unused)
            continue
        if unused:
            yield Entry(item.source or source, f"{request.too_long}: {len(item)} tokens", "truncated", unused)
        for note in item.notes:
            yield Entry(item.source or source, note, "altered")
        try:
            writer.add(attrs.evolve(fitted, source=item.source or source, notes=()), row)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{source}: {type(request.processor).__name__} yielded what can't be stored: {error}"
            ) from error


def _produced(processor: DataProcessor, block: Sequence[Row]) -> Iterator[tuple[str, Sequence[Yield]]]:
    readable = [(source, record) for source, record in block if not isinstance(record, Skip)]
    produced = iter(produce(processor, readable))
    for source, record in block:
        yield source, [record] if isinstance(record, Skip) else next(produced)


def _blocks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while block := list(islice(rows, BLOCK_ROWS)):
        yield block


def _split(store: Store, folder: Path, held_out: frozenset[int]) -> None:
    with ColumnWriter(folder / KEPT, "q") as kept, ColumnWriter(folder / HELD_OUT, "q") as apart:
        for place, row in enumerate(store.rows):
            (apart if row in held_out else kept).append(place)


def _summary(name: str, store: Store, ledger: Ledger) -> str:
    tokens = sum(store.size(place) for place in range(len(store)))
    supervised = sum(store.columns["supervised"])
    line = (
        f"{name} data: {ledger.rows:,} rows, {len(store):,} examples, {tokens:,} tokens, {supervised:,.0f} supervised"
    )
    if ledger.unusable:
        line += f"; {ledger.unusable:,} rows not used ({ledger.counts('skipped')})"
    for kind in ("truncated", "altered"):
        if counts := ledger.counts(kind):
            line += f"; {counts}"
    return line
