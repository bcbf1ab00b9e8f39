"""The trackers of a run, held so that none of them can stop or hang it."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from ike_core.errors import ConfigError
from ike_core.interfaces import RunFacts, Tracker, World

ADVANCE_SECONDS = 0.2  # a bar needs no more, and asking its thread costs 50 us: too much for every step
PATIENCE_SECONDS = 60.0  # far below the collective timeouts under which the other ranks wait for rank 0


@runtime_checkable
class Screen(Protocol):
    """A tracker that also owns a screen: it says lines, and shows how far the run is between two log lines."""

    def say(self, line: str) -> None: ...

    def advance(self, step: int) -> None: ...


class Trackers:
    """What a pipeline holds, alike on every rank: only rank 0 builds the parts and speaks.

    A part that raises, or that takes longer than `patience_seconds` for one call, is switched off with one warning and
    the run goes on. Each part lives in a thread of its own, which is how a call can be given up.
    """

    def __init__(
        self,
        parts: Mapping[str, Callable[[], Tracker]],
        world: World,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`parts`: what builds a tracker, by the name of its table. A ConfigError from one is raised."""
        self._speaks = world.is_first
        self._patience_seconds = patience_seconds
        self._on: dict[str, _Thread] = {}
        self._last_step = -1
        self._advanced_at = -ADVANCE_SECONDS
        if not self._speaks:
            return
        for name, build in parts.items():
            thread = self._on[name] = _Thread(name)
            thread.part = self._ask(name, "building it", build)

    def start(self, run: RunFacts) -> None:
        for name, part in self._parts():
            self._ask(name, "start()", part.start, run)

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """All that is due at `step`, in one call a step; without values only the screens move on."""
        if step <= self._last_step:
            raise ValueError(f"step {step} comes after step {self._last_step}: all of a step's values go in one log()")
        self._last_step = step
        if values:
            for name, part in self._parts():
                self._ask(name, "log()", part.log, step, values)
        elif time.monotonic() - self._advanced_at >= ADVANCE_SECONDS:
            self._advanced_at = time.monotonic()
            for name, screen in self._screens():
                self._ask(name, "advance()", screen.advance, step)

    def say(self, line: str) -> None:
        """One line for whoever watches: on the screens, or where there is none, on stderr."""
        for name, screen in self._screens():
            self._ask(name, "say()", screen.say, line)
        if self._speaks and not self._screens():
            print(line, file=sys.stderr, flush=True)

    def finish(self) -> None:
        """The end of the run, whether well or not. May be called again: the second time there is no one left."""
        for name, part in self._parts():
            self._ask(name, "finish()", part.finish)
        while self._on:
            self._on.popitem()[1].end()

    def _parts(self) -> list[tuple[str, Any]]:
        return [(name, thread.part) for name, thread in self._on.items()]

    def _screens(self) -> list[tuple[str, Screen]]:
        return [(name, part) for name, part in self._parts() if isinstance(part, Screen)]

    def _ask(self, name: str, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """The call's result; None, and the tracker is off, where it failed or did not come back."""
        if name not in self._on:  # an earlier warning found this screen broken
            return None
        future = self._on[name].ask(call, *arguments)
        try:
            error = future.exception(self._patience_seconds)
        except TimeoutError:
            reason = f"{what} took longer than {self._patience_seconds:g} s"
        else:
            if error is None:
                return future.result()
            if isinstance(error, ConfigError):
                raise error
            reason = f"{what} raised {type(error).__name__}: {error}"
        self._on.pop(name).end()
        self.say(f"warning: trackers.{name} is switched off and the run goes on: {reason}")
        return None


class _Thread:
    """One tracker and the thread in which all its calls are made, one after the other."""

    def __init__(self, name: str) -> None:
        self.part: Any = None
        self._asked: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._asked = queue.SimpleQueue()
        # A daemon: a call that never comes back must not keep the process alive.
        threading.Thread(target=self._work, name=f"tracker {name}", daemon=True).start()

    def ask(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._asked.put((future, call, arguments))
        return future

    def end(self) -> None:
        """The thread ends once the call that it is in has come back."""
        self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, call, arguments = asked
            try:
                future.set_result(call(*arguments))
            except BaseException as error:  # noqa: BLE001  # a service's SDK may raise SystemExit; who asked gets it
                future.set_exception(error)
