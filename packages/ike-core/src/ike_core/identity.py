"""The run's own name and folder, where no checkpoint part makes them."""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from ike_core.interfaces import OpenedRun, World

RUN_FILE = "IKE_RUN_FILE"
"""The launcher's: rank 0 writes the run's folder into the file of that name."""

SAVED_FILE = "IKE_SAVED_FILE"
"""The launcher's: rank 0 appends the folder of each step that it has saved, a line each."""


def own_run(name: str, root: Path, world: World, *, identity: str) -> OpenedRun:  # noqa: ARG001  nothing is gone on with
    """Collective: `<name>-<UTC time>-<random>`, made and its folder created by rank 0, received by all."""
    made = ""
    if world.is_first:
        made = f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        (root / made).mkdir(parents=True)
    return OpenedRun(file_id=str(world.broadcast(made)), step=None, note="", release=_nothing)


def _nothing() -> None:
    """Nobody else could join a run that is not saved."""


def tell_launcher(folder: Path, world: World) -> None:
    """The launcher keeps its logs beside the run once it knows where that is."""
    told = os.environ.get(RUN_FILE)
    if told and world.is_first:
        Path(told).write_text(str(folder.resolve()))


def tell_saved(step: Path, world: World) -> None:
    """The launcher says at the end of an interrupted run which saved step is the last."""
    told = os.environ.get(SAVED_FILE)
    if told and world.is_first:
        with Path(told).open("a") as file:
            file.write(f"{step.resolve()}\n")
