"""Rows processed by several processes, in the order of the rows whatever their number.

loky starts the processes: it does not import the script that the user runs a second time, and classes that stand in it
are sent as they are. What is sent goes through pipes from this process to its own children, and never to disk
(docs/decisions/0012).
"""

import gc
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Protocol

import attrs
from loky import ProcessPoolExecutor, cpu_count
from loky.process_executor import BrokenProcessPool

from ike_core.errors import DataError, IkeError
from ike_core.interfaces import Say
from ike_data.rows import Row
from ike_data.store.block import Block
from ike_data.until_broken import UntilBroken

PATIENCE_SECONDS = 3.0
"""Processes take seconds to start, with a tokenizer each: a build that is done by then starts none."""
MOST = 32
"""More than these, and the process that reads and writes would not keep up."""
AHEAD = 2
"""Blocks that wait at each worker."""
LOOK_SECONDS = 1.0

Batch = tuple[int, Sequence[Row]]
"""Number of the first row, and the rows."""


class Prepares(Protocol):
    """Makes blocks; is sent to the workers."""

    def block(self, first: int, rows: Sequence[Row]) -> Block: ...


def processed(
    preparation: Prepares, batches: Iterator[Batch], workers: int, say: Say
) -> Iterator[tuple[Sequence[Row], Block]]:
    """Each batch's rows with their block, in order. `workers` 0: as many as there are cores, if it takes a while.

    DataError as `preparation` raises it, and where a worker is killed.
    """
    count = workers or min(cpu_count(), MOST)
    if count > 1:
        patience = 0.0 if workers else PATIENCE_SECONDS
        yield from _shared(preparation, batches, count, say, patience)
    for first, rows in batches:
        yield rows, preparation.block(first, rows)


def _shared(
    preparation: Prepares, batches: Iterator[Batch], count: int, say: Say, patience: float
) -> Iterator[tuple[Sequence[Row], Block]]:
    """Here until the workers are ready, then by them; batches are left over where there can be no workers."""
    began = time.monotonic()
    for first, rows in batches:
        yield rows, preparation.block(first, rows)
        if time.monotonic() - began >= patience:
            break
    else:
        return
    with _pool(preparation, count) as pool:
        warm = [pool.submit(_warm, rows) for _ in range(count)]
        for first, rows in batches:
            yield rows, preparation.block(first, rows)
            if all(future.done() for future in warm):
                break
        else:
            return
        if reason := _unfit(warm):
            say(f"rows are processed by this process alone: {reason}")
            return
        yield from _by(pool, batches, count * AHEAD)


def _by(pool: ProcessPoolExecutor, batches: Iterator[Batch], ahead: int) -> Iterator[tuple[Sequence[Row], Block]]:
    waiting: deque[tuple[Sequence[Row], Future[Block]]] = deque()
    readable = UntilBroken(batches)
    for first, batch in readable:
        waiting.append((batch, pool.submit(_block, first, batch)))
        if len(waiting) > ahead:
            rows, future = waiting.popleft()
            yield rows, _result(future)
    for rows, future in waiting:
        yield rows, _result(future)
    readable.check()


def _result(future: "Future[Block]") -> Block:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that prepares rows was killed from outside; where memory is short, data.workers = 1 takes the "
            f"least ({str(error).partition(chr(10))[0]})"
        ) from error


def _unfit(warm: "Sequence[Future[None]]") -> str:
    """Why there can be no workers; '' where they are ready."""
    for future in warm:
        try:
            future.result(timeout=0)
        except IkeError:
            raise
        except Exception as error:  # noqa: BLE001  pickling a user's class may raise anything
            return f"its work can't be sent to others ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    return ""


@contextmanager
def _pool(preparation: Prepares, count: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(
        max_workers=count,
        initializer=_start,
        initargs=(preparation, os.getpid()),
        env={"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},  # a worker is one thread
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, kill_workers=True)  # at the end they have nothing left to do


@attrs.define
class _Worker:
    """What a worker process has."""

    preparation: Prepares | None = None


_worker = _Worker()


def _start(preparation: Prepares, parent: int) -> None:
    _worker.preparation = preparation
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """A parent that was killed can't end its workers."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def _block(first: int, rows: Sequence[Row]) -> Block:
    assert _worker.preparation is not None
    return _worker.preparation.block(first, rows)


def _warm(rows: Sequence[Row]) -> None:
    """Loads what the first rows load. The collector need not look at that again; loky runs it every second, which is
    enough: left to itself it takes 15 % of the time."""
    _block(0, rows)
    gc.freeze()
    gc.disable()
