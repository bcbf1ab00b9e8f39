"""A few rows processed afresh at each start: a store is right only for a processor that is a function of its rows."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from ike_core.errors import DataError
from ike_core.examples import AnyExample, Comparison, LabelledExample
from ike_data.building import Request
from ike_data.source_rows import source_row
from ike_data.store.block import segments_of
from ike_data.store.reader import Store
from ike_data.store.sample import SampledRow, read_sample, spread

_RULE = (
    "It must be a function of the row and of its own fields: no chance, no date, nothing read from elsewhere but files "
    "that are Path fields"
)


def check_fresh(name: str, store: Store, request: Request) -> None:
    """DataError where a row gives something else than the store holds; names the row and what differs."""
    preparation = request.preparation
    for sampled in _sample(store, request):
        kept = [store.example(place, index=place) for place in store.places(sampled.row)]
        difference = _difference(kept, preparation.examples(sampled.source, sampled.record))
        if difference:
            who = type(preparation.processor).__name__
            if request.source is not None:
                who = f"{type(request.source).__name__}, or {who},"
            raise DataError(
                f"{name} data: {sampled.source}: {who} gives something else than when the store was made: "
                f"{difference}. {_RULE}. Mend it, or remove {store.folder}"
            )


def _sample(store: Store, request: Request) -> Iterator[SampledRow]:
    """As they were read when the store was made; of a Source as it gives them now."""
    rows = store.manifest.tally.rows
    source = request.source
    if source is None:
        yield from read_sample(store.folder / store.manifest.others["sample"].name, rows)
        return
    for row in spread(rows):
        yield SampledRow(row, *source_row(source, row))


def _difference(kept: Sequence[AnyExample], fresh: Sequence[AnyExample]) -> str:
    """What of the examples of one row differs, first kept, then fresh; '' where nothing does."""
    if len(kept) != len(fresh):
        return f"{len(fresh)} examples instead of {len(kept)}"
    for old, new in zip(kept, fresh, strict=True):
        before, now = _facts(old), _facts(new)
        for what in before:
            if before[what] != now[what]:
                return f"{what}: {_first_difference(before[what], now[what])}"
    return ""


def _facts(example: AnyExample) -> Mapping[str, Any]:
    segments = segments_of(example)
    return {
        "kind of example": type(example).__name__,
        "source": example.source,
        "segments": len(segments),
        "tokens": [token for segment in segments for token in segment.tokens],
        "token weights": [weight for segment in segments for weight in array("f", segment.weights)],
        "segments' tokens": [len(segment) for segment in segments],
        "scores": [segment.score for segment in segments],
        "row weight": example.weight,
        "margin": example.margin if isinstance(example, Comparison) else None,
        "desirable": example.desirable if isinstance(example, LabelledExample) else None,
        "fields": orjson.loads(orjson.dumps(dict(example.fields))),
    }


def _first_difference(before: Any, now: Any) -> str:
    if not isinstance(before, list):
        return f"{now!r} instead of {before!r}"
    if len(before) != len(now):
        return f"{len(now)} instead of {len(before)}"
    place = next(place for place, (old, new) in enumerate(zip(before, now, strict=True)) if old != new)
    return f"number {place} is {now[place]!r} instead of {before[place]!r}"
