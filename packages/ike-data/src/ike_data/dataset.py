"""`read_dataset`: files to a dataset that every rank of a host maps, and one rank of it has made."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import orjson

from ike_core.interfaces import DataProcessor, DatasetParts, Holdout, World
from ike_data.announcing import Announcer, wait_until_ready
from ike_data.building import HELD_OUT, KEPT, SUMMARY, Request, build
from ike_data.columns import read_column
from ike_data.ledger import Ledger
from ike_data.store import Store, StoredDataset

DATA = "data"
LEDGER = "ledger.jsonl"


def read_dataset(
    name: str,
    files: Sequence[str],
    processor: DataProcessor,
    *,
    limit: int,
    max_tokens: int,
    too_long: str,
    budget: float,
    holdout: Holdout | None,
    folder: Path,
    world: World,
) -> DatasetParts:
    """Collective. The examples of some files; see `DatasetReader` of ike_core.interfaces.

    On each host the rank with local_rank 0 processes the rows into `folder/data/<name>/host-<its rank>` and the others
    map what it made. Rows that were not used, or were cut, are in `folder/ledger.jsonl`. DataError, the same on every
    rank, where files can't be read or more rows than the budget's share can't be used.
    """
    request = Request(
        name=name,
        files=files,
        processor=processor,
        limit=limit,
        max_tokens=max_tokens,
        too_long=too_long,
        budget=budget,
        holdout=holdout,
    )
    attempt = uuid4().hex
    if world.size > 1:
        attempt = world.broadcast(attempt)  # so that no rank takes what an earlier run left in the folder for today's
    place = folder / DATA / name / f"host-{world.rank - world.local_rank:05d}"
    announcement = place.with_name(f"{place.name}.{attempt}.json")
    if world.local_rank == 0:
        announcer = Announcer(announcement)
        with announcer.announcing():
            _build(request, place, Ledger(name, folder / LEDGER), announcer, keeps_ledger=world.rank == 0)
    else:
        wait_until_ready(announcement)
    return _map(place, has_holdout=holdout is not None)


def _build(request: Request, place: Path, ledger: Ledger, announcer: Announcer, *, keeps_ledger: bool) -> None:
    for earlier in place.parent.glob(f"{place.name}*.json"):
        earlier.unlink(missing_ok=True)
    partial = place.with_name(f"{place.name}.partial")
    for left_over in (partial, place):
        shutil.rmtree(left_over, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        build(request, partial, ledger, announcer.progress)
        partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if keeps_ledger:
            ledger.write()


def _map(place: Path, *, has_holdout: bool) -> DatasetParts:
    store = Store.open(place)
    summary = orjson.loads((place / SUMMARY).read_bytes())
    if not has_holdout:
        return DatasetParts(StoredDataset(store, range(len(store))), None, summary)
    kept, held_out = (StoredDataset(store, read_column(place / column, "q")) for column in (KEPT, HELD_OUT))
    return DatasetParts(kept, held_out, summary)
