"""A bar on the terminal while rows are processed: how far, how fast, how long still. Elsewhere nothing is shown."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ike_data.building import Request


@contextmanager
def row_bar(title: str, request: Request) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told the rows done so far. Rows are counted first, which takes far less than processing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows, {task.fields[speed]:,.0f} a second"),
        TimeRemainingColumn(),
    )
    with console.status(f"{title}: counting rows"):
        total = sum(1 for _ in request.rows())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total, speed=0.0)
        began, first = time.monotonic(), -1

        def told(rows: int) -> None:
            nonlocal first, began
            if first < 0:  # what an earlier build had done is no speed of this one
                first, began = rows, time.monotonic()
            speed = (rows - first) / max(time.monotonic() - began, 1e-3)
            progress.update(task, completed=rows, speed=speed)

        yield told
