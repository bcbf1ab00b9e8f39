"""The id of a run: rank 0 makes it and its folder, every rank receives it before anything else is built."""

import os
import re
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path

from ike_ckpt.disk import sync_folder, write_json
from ike_ckpt.owner import FILE, now
from ike_ckpt.ranks import ScriptRanks, Speaks, agree

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What a run or its id may be called: one folder name, on any system."""


def create_fileid(name: str = "run", *, root: str | Path = "runs") -> str:
    """`<name>-<UTC time>-<random>`, and the folder `root/<id>` with its owner.json.

    Collective where torch.distributed is initialised: every rank gets rank 0's id. Raises CheckpointError on every
    rank where the name is no folder name or the folder can't be made.
    """
    return create_for(ScriptRanks(), name, Path(root))


def create_for(ranks: Speaks, name: str, root: Path) -> str:
    """Collective: `create_fileid` among these ranks."""
    file_id, problem = "", ""
    if ranks.is_first:
        try:
            check_name(name, "a run's name")
            folder = new_folder(name, root)
            _write_owner(folder)
            file_id = folder.name
        except (OSError, ValueError) as error:
            problem = f"no folder could be made for run {name!r} in {root.absolute()}: {error}"
    agree(ranks, problem)
    said = ranks.broadcast(file_id)
    assert isinstance(said, str)
    return said


def check_name(name: str, what: str) -> None:
    """ValueError where it is no plain folder name."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{what} is letters, digits, '.', '_' and '-', the first a letter or digit; got {name!r}")


def new_folder(name: str, root: Path) -> Path:
    """Makes `root/<name>-<UTC time>-<random>`, which nobody else has."""
    root.mkdir(parents=True, exist_ok=True)
    started = datetime.now(UTC)
    while True:
        # 32 random bits: two starts in one second differ; `mkdir` settles the rest, on a shared disk too
        folder = root / f"{name}-{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        sync_folder(root)
        return folder


def _write_owner(folder: Path) -> None:
    """Of a script: who made the folder. A pipeline's run has an `Owner`, which also beats."""
    started = now()
    owner = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "started": started,
        "heartbeat": started,
    }
    write_json(folder / FILE, owner)
