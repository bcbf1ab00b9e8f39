"""How the rank that builds tells the others of its host: a small file, replaced whole. No process group waits.

Building may take hours, and a collective has a timeout that is meant for hung ranks. So the others look at a file,
and give up only when it has not changed for long: the count of rows in it is a sign of life.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import attrs
import orjson

from ike_core.errors import DataError, IkeError

SILENCE_SECONDS = 1800.0
"""Longer than any row takes; a builder that dies is noticed by the launcher long before."""
SIGN_OF_LIFE_SECONDS = 1.0
LOOK_SECONDS = 0.05


@attrs.frozen
class Announcement:
    """What the file says."""

    state: Literal["building", "ready", "failed"]
    rows: int = 0
    """Read so far."""
    error: str = ""
    """Name of the error's class in ike_core.errors."""
    message: str = ""
    place: str = ""
    """Folder of the store, when it is ready."""


@attrs.define
class Announcer:
    """The builder's side."""

    path: Path
    place: str = ""
    """Folder of the store; to be set before the end of `announcing`."""
    _last: float = 0.0

    def progress(self, rows: int) -> None:
        """A sign of life; written at most once a second."""
        if time.monotonic() - self._last > SIGN_OF_LIFE_SECONDS:
            self._last = time.monotonic()
            self._write(Announcement("building", rows))

    @contextmanager
    def announcing(self) -> Iterator[None]:
        """Says 'ready' at the end of the block, or what it failed with."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except IkeError as error:
            self._write(Announcement("failed", error=type(error).__name__, message=str(error)))
            raise
        except BaseException as error:
            what = f"the rank that prepares the data failed: {type(error).__name__}: {error}"
            self._write(Announcement("failed", error=DataError.__name__, message=what))
            raise
        self._write(Announcement("ready", place=self.place))

    def _write(self, announcement: Announcement) -> None:
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.write_bytes(orjson.dumps(attrs.asdict(announcement)))
        partial.replace(self.path)


def wait_until_ready(path: Path, *, silence_seconds: float = SILENCE_SECONDS) -> str:
    """The store's folder, when the builder is done; raises its error, or DataError when it fell silent."""
    seen: Announcement | None = None
    deadline = time.monotonic() + silence_seconds
    while time.monotonic() < deadline:
        said = _read(path)
        if said is not None and said.state == "ready":
            return said.place
        if said is not None and said.state == "failed":
            raise _error(said)
        if said != seen:
            seen, deadline = said, time.monotonic() + silence_seconds
        time.sleep(LOOK_SECONDS)
    rows = seen.rows if seen else 0
    raise DataError(
        f"the rank that prepares the data has said nothing for {silence_seconds:.0f} s, after {rows} rows ({path})"
    )


def _read(path: Path) -> Announcement | None:
    try:
        return Announcement(**orjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return None


def _error(said: Announcement) -> IkeError:
    kinds: dict[str, type[IkeError]] = {kind.__name__: kind for kind in IkeError.__subclasses__()}
    return kinds.get(said.error, DataError)(said.message)
