"""Who runs in a run folder: `owner.json`, and a lock that a process holds as long as it lives.

The lock goes with its process, however that ends, so a run on this machine is never thought alive when it is dead. A
lock may not reach other hosts (some shared disks keep it local): of those the heartbeat is watched.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from ike_ckpt.disk import write_json

FILE = "owner.json"
LOCK = "owner.lock"
HEARTBEAT_SECONDS = 15.0
"""Between two beats."""
SILENCE_SECONDS = 40.0
"""Without a beat a process on another host is taken for dead: two beats, and time for a slow disk."""


@attrs.define(eq=False)
class Owner:
    """This process owns a run folder until `release`, or its end."""

    folder: Path
    _record: dict[str, Any]
    _lock: int
    _stopped: threading.Event = attrs.field(factory=threading.Event, init=False)

    def beat(self) -> None:
        """Starts a thread that writes the heartbeat; a disk that fails it costs nothing but the beat."""
        threading.Thread(target=self._beat, name="ike-heartbeat", daemon=True).start()

    def release(self) -> None:
        """The run may be joined. May be called again."""
        if not self._stopped.is_set():
            self._stopped.set()
            os.close(self._lock)

    def _beat(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            try:
                write_json(self.folder / FILE, self._record | {"heartbeat": now()})
            except OSError:
                continue


def claim(folder: Path, record: Mapping[str, Any]) -> Owner | None:
    """Owns the folder and says so in it; None where a live process does. `record` goes into owner.json."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    if beats_elsewhere(folder):
        os.close(lock)
        return None
    said = {"host": socket.gethostname(), "pid": os.getpid(), "job": os.environ.get("SLURM_JOB_ID", "")}
    whole = {**said, "started": now(), "heartbeat": now(), **record}
    write_json(folder / FILE, whole)
    owner = Owner(folder, whole, lock)
    owner.beat()
    return owner


def beats_elsewhere(folder: Path) -> bool:
    """Whether an owner on another host lives: its heartbeat moves while it is watched. No clocks are compared."""
    first = read_owner(folder)
    if first is None or first["host"] == socket.gethostname() or _is_released(first):
        return False
    until = time.monotonic() + SILENCE_SECONDS
    while time.monotonic() < until:
        time.sleep(1.0)
        if (later := read_owner(folder)) is not None and later["heartbeat"] != first["heartbeat"]:
            return True
    return False


def _is_released(record: Mapping[str, Any]) -> bool:
    """No process lives that long between two beats, whatever the clocks of the hosts say."""
    silent = datetime.now(UTC) - datetime.fromisoformat(record["heartbeat"])
    return silent.total_seconds() > 24 * 3600


def read_owner(folder: Path) -> dict[str, Any] | None:
    """`owner.json`; None where there is none that can be read."""
    try:
        said = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return {**said, "host": str(said["host"]), "heartbeat": str(said["heartbeat"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def now() -> str:
    """UTC, to the second, with its zone."""
    return datetime.now(UTC).isoformat(timespec="seconds")
