"""Stores kept between runs, in a folder of theirs: found by key, built once, whoever asks first."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from filelock import FileLock, Timeout

from ike_core.errors import DataError
from ike_core.interfaces import Say
from ike_data.announcing import SILENCE_SECONDS
from ike_data.building import Request, build
from ike_data.keying.contents import ContentHashes
from ike_data.keying.key import Key, key_of
from ike_data.ledger import Budget, Tally, add_to_ledger
from ike_data.sources.opening import WAY_OUT
from ike_data.store.manifest import DamageError
from ike_data.store.reader import Store
from ike_data.store.writer import ENTRIES, Progress

HASHES = "hashes"
"""Folder of what is known of files' contents."""
ABANDONED_SECONDS = 7 * 24 * 3600.0
"""What was begun and not gone on with for so long is removed by whoever builds next."""
LOOK_SECONDS = 0.2


def user_cache() -> Path:
    """Where stores are kept unless `data.cache` says otherwise: the cache folder of the user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ike" / "data"


@attrs.frozen(kw_only=True)
class Builder:
    """Finds or makes the store of a request."""

    request: Request
    name: str
    """Of the dataset."""
    cache: Path
    """Folder of kept stores."""
    own: Path | None
    """Folder for a store that can't be kept; None: there is to be none."""
    budget: Budget
    keeps_ledger: bool
    """Whether the store's ledger goes into the run's."""
    progress: Callable[[Tally], None]
    say: Say

    def store(self) -> Store:
        """DataError where it can't be made or kept, or more rows are unusable than the budget allows."""
        try:
            key = self.key()
            store = self._apart(key) if key.reason else self._kept(key)
            self._tell(store.folder)
        except OSError as error:
            raise DataError(self.unwritable(error)) from error
        self.budget.check(store.manifest.tally)
        return store

    def key(self) -> Key:
        """What the store is called by. DataError where a file can't be read."""
        preparation = self.request.preparation
        return key_of(
            self.request.files,
            preparation.processor,
            limit=self.request.limit,
            max_tokens=preparation.max_tokens,
            too_long=preparation.too_long,
            hashes=ContentHashes(self.cache / HASHES),
        )

    def _apart(self, key: Key) -> Store:
        reason = f"{self.name} data: its store can't be kept for later runs: {key.reason}"
        if self.own is None:
            raise DataError(reason)
        if self.request.is_stream:
            raise DataError(f"{reason}; and {type(self.request.files).__name__} is a stream. {WAY_OUT}")
        self.say(reason)
        shutil.rmtree(self.own, ignore_errors=True)
        self._build(self.own, key)
        return Store.open(self.own)

    def _kept(self, key: Key) -> Store:
        folder = self.cache / key.name
        if store := self._whole(folder):
            return store
        if self.request.is_stream and self.own is not None:
            raise DataError(f"{self.name} data: {type(self.request.files).__name__} is a stream. {WAY_OUT}")
        # absent or damaged: which of the two is looked at again, and said, by the one who then makes it
        self.cache.mkdir(parents=True, exist_ok=True)
        with self._locked(folder):
            if store := self._whole(folder, tell=True):  # another built it while we waited
                return store
            partial = folder.with_name(f"{folder.name}.partial")
            if folder.exists():
                shutil.rmtree(folder)
            self._remove_abandoned(partial)
            self._build(partial, key)
            if self.key() != key:
                shutil.rmtree(partial)
                raise DataError(f"{self.name} data: its files, or the processor's code, changed while rows were read")
            partial.rename(folder)
        return Store.open(folder)

    def _whole(self, folder: Path, *, tell: bool = False) -> Store | None:
        """The store, every byte looked at; None where there is none, or a damaged one."""
        if not folder.exists():
            return None
        try:
            store = Store.open(folder)
            store.manifest.check_content(folder)
        except (DamageError, OSError) as error:
            if tell:
                self.say(f"{self.name} data: its store is damaged and made anew: {error}")
            return None
        return store

    def _build(self, folder: Path, key: Key) -> None:
        try:
            build(
                self.request,
                folder,
                budget=self.budget,
                description=key.description,
                progress=self.progress,
                say=self.say,
            )
        except DataError:
            self._tell(folder)
            raise

    def _tell(self, folder: Path) -> None:
        entries = folder / ENTRIES
        if self.keeps_ledger and entries.exists():
            add_to_ledger(self.budget.ledger, self.name, entries)

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """Waits as long as another goes on building it."""
        lock = FileLock(folder.with_name(f"{folder.name}.lock"))
        seen, deadline, is_said = Tally(), time.monotonic() + SILENCE_SECONDS, False
        while True:
            try:
                lock.acquire(timeout=0)
                break
            except Timeout:
                if not is_said:
                    self.say(f"{self.name} data: another process makes its store; waiting for it ({folder})")
                    is_said = True
            tally = _tally(folder.with_name(f"{folder.name}.partial"))
            if tally.rows != seen.rows:
                seen, deadline = tally, time.monotonic() + SILENCE_SECONDS
                self.progress(seen)
            if time.monotonic() > deadline:
                raise DataError(
                    f"{self.name} data: the process that makes its store has not gone on for {SILENCE_SECONDS:.0f} s, "
                    f"after {seen.rows} rows ({lock.lock_file})"
                )
            time.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _remove_abandoned(self, own: Path) -> None:
        for partial in self.cache.glob("*.partial"):
            if partial != own and partial.is_dir() and time.time() - partial.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)

    def unwritable(self, error: OSError) -> str:
        """For a DataError."""
        where = error.filename or self.cache
        remedy = "free some space, or set data.cache to a folder on another disk"
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            remedy = "set data.cache to a folder that can be written to"
        return f"{self.name} data: its store can't be written: {where}: {error.strerror}; {remedy}"


def _tally(partial: Path) -> Tally:
    progress = Progress.read(partial)
    return Tally.of(progress.tally) if progress else Tally()
