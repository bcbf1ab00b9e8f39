"""Rows to a store, once: read, process, fit to the length, write, and account for every row."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import attrs

from ike_core.errors import DataError
from ike_core.examples import AnyExample, Skip
from ike_core.interfaces import DataProcessor, Record, Say
from ike_data.ledger import Budget, Entry, Tally
from ike_data.lengths import fit
from ike_data.producing import Yield, produce
from ike_data.rows import Row, read_rows
from ike_data.store.block import Block, Packer
from ike_data.store.writer import StoreWriter
from ike_data.workers import processed

BLOCK_ROWS = 256
"""Rows a tokenizer is given at once: enough for it to use its threads, few enough to hold."""
RECORD_SECONDS = 5.0
"""How much work a kill may cost."""


@attrs.frozen(kw_only=True)
class Preparation:
    """What is done to rows; it travels to worker processes."""

    processor: DataProcessor
    max_tokens: int
    too_long: str

    def block(self, first: int, rows: Sequence[Row]) -> Block:
        """What rows `first` and those behind it give. DataError where the processor raises, or yields no examples."""
        packer = Packer()
        entries: list[Entry] = []
        unusable = 0
        for number, (source, items) in enumerate(self._produced(rows), first):
            is_used = True
            for kept in self._kept(source, items):
                if isinstance(kept, Entry):
                    entries.append(kept)
                    is_used = is_used and kept.kind != "skipped"
                else:
                    self._pack(packer, kept, source, row=number)
            unusable += not is_used
        return packer.block(rows=len(rows), unusable=unusable, entries=entries)

    def examples(self, source: str, record: Record) -> list[AnyExample]:
        """What is kept of one row."""
        ((_, items),) = self._produced([(source, record)])
        return [kept for kept in self._kept(source, items) if not isinstance(kept, Entry)]

    def _produced(self, rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Yield]]]:
        readable = [(source, record) for source, record in rows if not isinstance(record, Skip)]
        produced = iter(produce(self.processor, readable))
        for source, record in rows:
            yield source, [record] if isinstance(record, Skip) else next(produced)

    def _kept(self, source: str, items: Sequence[Yield]) -> Iterator[Entry | AnyExample]:
        """Of what one row gave: examples that fit, and what goes to the ledger."""
        if not items:
            yield Entry(source, "the processor yielded nothing")
        for item in items:
            name = item.source or source
            if isinstance(item, Skip):
                yield Entry(name, item.reason)
                continue
            fitted, unused = fit(item, max_tokens=self.max_tokens, too_long=self.too_long)
            if isinstance(fitted, Skip):
                yield Entry(name, fitted.reason, tokens=unused)
                continue
            if unused:
                yield Entry(name, f"{self.too_long}: {len(item)} tokens", "truncated", unused)
            for note in item.notes:
                yield Entry(name, note, "altered")
            yield fitted if fitted.source == name else attrs.evolve(fitted, source=name)

    def _pack(self, packer: Packer, example: AnyExample, source: str, *, row: int) -> None:
        try:
            packer.add(example, row)
        except (TypeError, ValueError, OverflowError) as error:
            who = type(self.processor).__name__
            raise DataError(f"{source}: {who} yielded what can't be stored: {error}") from error


@attrs.frozen(kw_only=True)
class Request:
    """What is to be built."""

    files: Sequence[str]
    limit: int
    preparation: Preparation
    workers: int
    """Processes; 0: as many as this one has cores, if it takes long enough."""

    def rows(self) -> Iterator[Row]:
        """All rows, in their order."""
        return read_rows(self.files, limit=self.limit)


def build(
    request: Request,
    folder: Path,
    *,
    budget: Budget,
    description: Mapping[str, Any],
    progress: Callable[[Tally], None],
    say: Say,
) -> None:
    """The store of a request in a folder; goes on where an earlier build of the same request was stopped.

    DataError where the rows, or the processor, are unfit; OSError where the folder can't hold it.
    """
    with StoreWriter.open(folder) as writer:
        rows = islice(request.rows(), writer.tally.rows, None)
        recorded = time.monotonic()
        for batch, block in processed(request.preparation, _batches(rows, writer.tally.rows), request.workers, say):
            for number, (source, record) in enumerate(batch, writer.tally.rows):
                if not isinstance(record, Skip):
                    writer.sample(number, source, record)
            writer.append(block)
            budget.check_early(writer.tally)
            progress(writer.tally)
            if time.monotonic() - recorded > RECORD_SECONDS:
                writer.record()
                recorded = time.monotonic()
        writer.finish(description)


def _batches(rows: Iterator[Row], first: int) -> Iterator[tuple[int, list[Row]]]:
    while batch := list(islice(rows, BLOCK_ROWS)):
        yield first, batch
        first += len(batch)
