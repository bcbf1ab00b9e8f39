"""A bar on the terminal while rows are processed: how far, how fast, how long still. Elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ike_data.building import Request

LINE_SECONDS = 30.0
"""Between lines where there is no terminal."""


@attrs.define
class Speed:
    """Rows a second, of those that were done since it was first asked."""

    _rows: int = -1
    _began: float = 0.0

    def at(self, rows: int) -> float:
        """When `rows` are done."""
        now = time.monotonic()
        if self._rows < 0:  # what an earlier build had done is no speed of this one
            self._rows, self._began = rows, now
        return (rows - self._rows) / max(now - self._began, 1e-3)


@contextmanager
def row_bar(title: str, request: Request) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told the rows done so far. For a bar, rows are counted first: that takes far less time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows, {task.fields[speed]:,.0f} a second"),
        TimeRemainingColumn(),
    )
    with console.status(f"{title}: counting rows"):
        total = sum(1 for _ in request.rows())
    speed = Speed()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total, speed=0.0)
        yield lambda rows: progress.update(task, completed=rows, speed=speed.at(rows))


def _lines(title: str) -> Callable[[int], None]:
    speed, said = Speed(), time.monotonic()

    def told(rows: int) -> None:
        nonlocal said
        a_second = speed.at(rows)
        if time.monotonic() - said > LINE_SECONDS:
            said = time.monotonic()
            print(f"{title}: {rows:,} rows, {a_second:,.0f} a second", file=sys.stderr)

    return told
