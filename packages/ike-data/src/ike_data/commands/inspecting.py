"""`ike-data inspect`: rows as the model will see them."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich.console import Console

from ike_core.errors import ConfigError, DataError
from ike_data.commands.page import write_page
from ike_data.commands.selection import Selection, select
from ike_data.commands.terminal import legend, show
from ike_data.commands.views import RowView, view
from ike_data.rows import Row


def inspect_rows(words: Sequence[str], *, data: str, rows: int, start: int, row: str, page: str) -> int:
    """Shows `rows` rows from `start`, or the one called `row`; on a page where one is named. Returns 0."""
    views = [each for selection in select(words, data=data) for each in _views(selection, rows, start, row)]
    if page:
        write_page(Path(page), views)
        print(f"wrote {page}: {len(views)} rows")
        return 0
    console = Console(highlight=False, soft_wrap=True)
    console.print(legend(has_colours=console.color_system is not None))
    console.print()
    for each in views:
        show(console, each)
    return 0


def _views(selection: Selection, count: int, start: int, source: str) -> list[RowView]:
    tokenizer = selection.tokenizer
    if tokenizer is None:
        raise ConfigError(
            "no tokenizer to read tokens by; say tokenizer.path=FOLDER, a .gguf file or a name on the hub"
        )
    request = selection.request
    rows = [_called(selection, source)] if source else list(islice(request.rows(), start, start + count))
    if not rows:
        raise DataError(f"{selection.name} data: there is no row behind the first {start}")
    return [view(outcome, tokenizer) for outcome in request.preparation.outcomes(rows)]


def _called(selection: Selection, source: str) -> Row:
    first = ""
    for row in selection.request.rows():
        first = first or row[0]
        if row[0] == source:
            return row
    hint = f"; the first is called {first}" if first else ""
    raise DataError(f"{selection.name} data: no row is called {source}{hint}")
