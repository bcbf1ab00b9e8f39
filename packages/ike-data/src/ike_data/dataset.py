"""`read_dataset`: files to a dataset that every rank of a host maps, and one rank of it has made."""

import time
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from ike_core.interfaces import DataProcessor, DatasetParts, Holdout, Say, Source, World
from ike_data.announcing import Announcer, wait_until_ready
from ike_data.building import Preparation, Request
from ike_data.fresh import check_fresh
from ike_data.holdout import held_out_rows
from ike_data.in_place import InPlace, examples_in
from ike_data.kept import Builder, user_cache
from ike_data.ledger import Budget, Tally, add_to_ledger
from ike_data.measures import measured
from ike_data.measuring import ENTRIES
from ike_data.store.columns import ColumnFile, map_column
from ike_data.store.reader import Examples, Store, StoredDataset

DATA = "data"
LEDGER = "ledger.jsonl"
KEPT, HELD_OUT = "kept", "held_out"
"""Columns of places in the store; absent where no rows are held out."""
SAY_SECONDS = 30.0
"""Between lines for the console while a store is made."""
PLACES = 1 << 16
"""Written at once."""
STORE = "store"
"""A store that can't be kept for later runs."""
IN_PLACE = "in-place"
"""Columns about examples that are read where they are."""


def read_dataset(
    name: str,
    files: Sequence[str] | Source,
    processor: DataProcessor,
    *,
    limit: int,
    max_tokens: int,
    too_long: str,
    budget: float,
    holdout: Holdout | None,
    folder: Path,
    world: World,
    cache: Path | None,
    workers: int,
    say: Say,
) -> DatasetParts:
    """Collective. The examples of some files; see `DatasetReader` of ike_core.interfaces.

    On each host the rank with local_rank 0 finds the store of these rows in `cache`, or makes it there, and the others
    map it. What holds examples already (token indexes, a Source of examples) is read in place. Rows that were not used,
    or not as they are, are in `folder/ledger.jsonl`. DataError, the same on every rank, where files can't be read, more
    rows than the budget's share can't be used, or the processor gives something else for a row than it gave before.
    """
    preparation = Preparation(processor=processor, max_tokens=max_tokens, too_long=too_long)
    request = Request(files=files, limit=limit, preparation=preparation, workers=workers)
    attempt = uuid4().hex
    if world.size > 1:
        attempt = world.broadcast(attempt)  # so that no rank takes what an earlier run left in the folder for today's
    place = folder / DATA / name / f"host-{world.rank - world.local_rank:05d}"
    announcement = place.with_name(f"{place.name}.{attempt}.json")
    if world.local_rank == 0:
        announcer = Announcer(announcement)
        with announcer.announcing():
            for earlier in place.parent.glob(f"{place.name}.*.json"):
                earlier.unlink(missing_ok=True)
            builder = Builder(
                request=request,
                name=name,
                cache=cache or user_cache(),
                own=place / STORE,
                budget=Budget(name, budget, folder / LEDGER),
                keeps_ledger=world.rank == 0,
                progress=_progress(name, announcer, say),
                say=say,
            )
            examples = _examples(builder, place)
            place.mkdir(parents=True, exist_ok=True)
            if holdout is not None:
                _split(examples, place, held_out_rows(examples.tally.rows, holdout))
            announcer.place = str(examples.folder)
    else:
        mapped = Path(wait_until_ready(announcement))
        sources = examples_in(files)
        examples = InPlace.open(mapped, sources, preparation) if sources else Store.open(mapped)
    summary, largest_token = examples.tally.summary(name), examples.tally.largest_token
    if holdout is None:
        return DatasetParts(StoredDataset(examples, range(len(examples))), None, summary, largest_token)
    kept, held_out = (StoredDataset(examples, map_column(place / column, "q")) for column in (KEPT, HELD_OUT))
    return DatasetParts(kept, held_out, summary, largest_token)


def _examples(builder: Builder, place: Path) -> Examples:
    """Of the rank that prepares them for its host."""
    request = builder.request
    sources = examples_in(request.files)
    if not sources:
        store = builder.store()
        check_fresh(builder.name, store, request)
        return store
    examples = measured(builder, sources, place / IN_PLACE)
    if builder.keeps_ledger:
        add_to_ledger(builder.budget.ledger, builder.name, examples.folder / ENTRIES)
    builder.budget.check(examples.tally)
    return examples


def _progress(name: str, announcer: Announcer, say: Say) -> Callable[[Tally], None]:
    """A sign of life for the other ranks, and now and then for whoever watches."""
    began = said = time.monotonic()

    def progress(tally: Tally) -> None:
        nonlocal said
        announcer.progress(tally.rows)
        now = time.monotonic()
        if now - said > SAY_SECONDS:
            said = now
            say(f"{name} data: {tally.rows:,} rows read, {tally.tokens:,} tokens, {now - began:,.0f} s")

    return progress


def _split(examples: Examples, folder: Path, held_out: frozenset[int]) -> None:
    """Writes which of the examples are whose."""
    apart = sorted(place for row in held_out for place in examples.places(row))
    kept, held = (ColumnFile.open(folder / name, "q") for name in (KEPT, HELD_OUT))
    held.extend(array("q", apart))
    for before, after in pairwise((-1, *apart, len(examples))):
        for start in range(before + 1, after, PLACES):
            kept.extend(array("q", range(start, min(start + PLACES, after))))
    kept.close()
    held.close()
