"""`ike-data prepare`: the token stores of a run, made before it starts, where the run will look for them."""

import sys
import time
from collections.abc import Callable, Sequence

import attrs

from ike_core.errors import ConfigError
from ike_core.interfaces import Source
from ike_data.commands.row_bar import row_bar
from ike_data.commands.selection import Selection, select
from ike_data.fresh import check_fresh
from ike_data.in_place import examples_in
from ike_data.kept import Builder
from ike_data.ledger import Budget, Tally
from ike_data.measures import measured

LEDGER = "ledger.jsonl"
"""In the folder of kept stores, behind the store's name: what became of its rows."""


def prepare_stores(words: Sequence[str], *, data: str) -> int:
    """Makes the store of each dataset that the words mean ('': all of [data]), unless it is there. Returns 0.

    ConfigError where only the built model could tell how long an example may be; DataError as the run would raise it,
    and where a store can't be kept.
    """
    for selection in select(words, data=data):
        _prepare(selection)
    return 0


def _prepare(selection: Selection) -> None:
    if not selection.knows_limit:
        table = "data.train" if selection.name.startswith("train") else "its table"
        raise ConfigError(
            f"{selection.name} data: how many tokens an example may have is only known when the model is built; say "
            f"max_tokens in {table}, so that the run looks for what is prepared"
        )
    if sources := examples_in(selection.request.files):
        _measure(selection, sources)
        return
    began, made = time.monotonic(), Tally()
    with row_bar(selection.name, selection.request) as told:

        def progress(tally: Tally) -> None:
            nonlocal made
            made = tally
            told(tally.rows)

        builder = _builder(selection, progress)
        store = builder.store()
    check_fresh(selection.name, store, selection.request)
    print(store.manifest.tally.summary(selection.name))
    seconds = time.monotonic() - began
    speed = f"made in {seconds:,.1f} s, {made.rows / seconds:,.0f} rows a second" if made.rows else "was there already"
    size = sum(file.stat().st_size for file in store.folder.iterdir())
    print(f"  {speed}: {store.folder}, {size / 1e6:,.1f} MB")
    if store.manifest.tally.reasons:
        print(f"  what became of rows that were not used as they are: {builder.budget.ledger}")


def _measure(selection: Selection, sources: tuple[Source, ...]) -> None:
    """Nothing is made of what holds examples; the measures of token indexes are kept."""
    if not isinstance(selection.request.files, (list, tuple)):
        print(f"{selection.name} data: {type(sources[0]).__name__} gives examples, which a run reads where they are")
        return
    builder = _builder(selection, progress=lambda _: None)
    examples = measured(builder, sources, selection.cache)
    builder.budget.check(examples.tally)
    print(f"{examples.tally.summary(selection.name)}\n  read where they are; measured: {examples.folder}")


def _builder(selection: Selection, progress: Callable[[Tally], None]) -> Builder:
    """With a ledger of the store's own beside it: two that are made at once don't meet."""
    budget = Budget(selection.name, selection.budget, selection.cache / LEDGER)
    builder = Builder(
        request=selection.request,
        name=selection.name,
        cache=selection.cache,
        own=None,
        budget=budget,
        keeps_ledger=True,
        progress=progress,
        say=_say,
    )
    ledger = selection.cache / f"{builder.key().name}.{LEDGER}"
    return attrs.evolve(builder, budget=attrs.evolve(budget, ledger=ledger))


def _say(line: str) -> None:
    print(line, file=sys.stderr)
