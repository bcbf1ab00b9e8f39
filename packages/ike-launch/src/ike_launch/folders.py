"""Where the files of a launch lie."""

import secrets
from datetime import UTC, datetime
from pathlib import Path

import attrs

from ike_launch.job import Job


def new_launch_id() -> str:
    """Sorts by time; two launches of one moment differ."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def starting_folder(root: Path, launch_id: str) -> Path:
    """Of the ranks' output while nobody knows the run's id."""
    return root.absolute() / ".starting" / launch_id


def move_logs(job: Job, run_folder: Path) -> Job:
    """`<run>/ranks` becomes this launch's; an earlier launch's becomes `ranks.1`, `ranks.2` ...

    The ranks go on writing through the files they hold open; nothing is moved across file systems, where they couldn't.
    """
    place = run_folder / "ranks"
    if job.logs.stat().st_dev != run_folder.stat().st_dev:
        return job
    if place.exists():
        place.rename(_free(place))
    starting = job.logs.parent
    job.logs.rename(place)
    if starting.name == ".starting" and not any(starting.iterdir()):
        starting.rmdir()
    return attrs.evolve(job, logs=place)


def _free(place: Path) -> Path:
    number = 1
    while (free := place.with_name(f"{place.name}.{number}")).exists():
        number += 1
    return free
