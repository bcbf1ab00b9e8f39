"""Rows to a store, once: read, process, fit to the length, write, and account for every row."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import attrs

from ike_core.errors import DataError
from ike_core.examples import AnyExample, Skip
from ike_core.interfaces import DataProcessor, Record, Say, Source
from ike_data.ledger import Budget, Entry, Tally
from ike_data.outcomes import Outcome, outcomes
from ike_data.producing import shapes
from ike_data.rows import Row, read_rows
from ike_data.source_rows import is_stream, own_source, source_rows, stream_rows
from ike_data.store.block import Block, Packer
from ike_data.store.writer import StoreWriter
from ike_data.until_broken import UntilBroken
from ike_data.workers import Batch, processed

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

    def outcomes(self, rows: Sequence[Row]) -> Iterator[Outcome]:
        """What becomes of each row. DataError where the processor raises, or yields what is no example."""
        return outcomes(self.processor, rows, max_tokens=self.max_tokens, too_long=self.too_long)

    def block(self, first: int, rows: Sequence[Row]) -> Block:
        """What rows `first` and those behind it give. DataError where the processor raises, or yields no examples."""
        packer = Packer()
        entries: list[Entry] = []
        unusable = 0
        for number, outcome in enumerate(self.outcomes(rows), first):
            for example in outcome.examples:
                self._pack(packer, example, outcome.source, row=number)
            entries += outcome.entries
            unusable += outcome.is_unusable
        readable = [record for _, record in rows if not isinstance(record, Skip)]
        return packer.block(rows=len(rows), unusable=unusable, entries=entries, shapes=shapes(self.processor, readable))

    def examples(self, source: str, record: Record) -> Sequence[AnyExample]:
        """What is kept of one row."""
        (outcome,) = self.outcomes([(source, record)])
        return outcome.examples

    def _pack(self, packer: Packer, example: AnyExample, source: str, *, row: int) -> None:
        try:
            packer.add(example, row)
        except (TypeError, ValueError, OverflowError) as error:
            who = type(self.processor).__name__
            raise DataError(f"{source}: {who} yielded what can't be stored: {error}") from error


@attrs.frozen(kw_only=True)
class Request:
    """What is to be built."""

    files: Sequence[str] | Source
    """Paths and the like (see `read_rows`), or records of the user's own: a Source, or a stream."""
    limit: int
    preparation: Preparation
    workers: int
    """Processes; 0: as many as this one has cores, if it takes long enough."""

    @property
    def source(self) -> Source | None:
        """A Source, whose rows can be read again at any place; None: files, or a stream."""
        return own_source(self.files)

    @property
    def is_stream(self) -> bool:
        """Whether the rows are a user's own that can only be read from start to end."""
        return is_stream(self.files)

    def rows(self) -> Iterator[Row]:
        """All rows, in their order."""
        source = self.source
        if source is not None:
            return source_rows(source, limit=self.limit)
        if not isinstance(self.files, (list, tuple)):
            stream: Any = self.files
            return stream_rows(stream, limit=self.limit)
        return read_rows(self.files, limit=self.limit)

    def batches(self, *, first: int = 0) -> Iterator[Batch]:
        """Rows from number `first` on, by as many as are processed at once; all that can be read, before any error."""
        rows = UntilBroken(islice(self.rows(), first, None))
        readable = iter(rows)
        while batch := list(islice(readable, BLOCK_ROWS)):
            yield first, batch
            first += len(batch)
        rows.check()


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
        recorded = time.monotonic()
        batches = request.batches(first=writer.tally.rows)
        for batch, block in processed(request.preparation, batches, request.workers, say):
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
