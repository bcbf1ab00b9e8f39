"""`ike-launch run`: ranks of any command."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ike_core.errors import LaunchError
from ike_launch.devices import Gpus
from ike_launch.folders import new_launch_id
from ike_launch.job import Job
from ike_launch.launching import launch, require_torch
from ike_launch.supervisor import Outcome


def run_script(words: Sequence[str], *, ranks: int | str, port: int) -> int:
    """Runs the command to its end; returns 0, or the failing rank's own exit code."""
    if shutil.which(words[0]) is None:
        raise LaunchError(f"there is no program {words[0]!r} to run; is it on PATH?")
    require_torch()
    count = Gpus.find().ranks(ranks)
    logs = Path(tempfile.mkdtemp(prefix="ike-ranks-"))
    with tempfile.TemporaryDirectory(prefix="ike-launch-") as control:
        job = Job(
            command=tuple(words), ranks=count, launch_id=new_launch_id(), logs=logs, control=Path(control), port=port
        )
        outcome = launch(job, title="run")
    _keep(logs, outcome)
    return outcome.exit_code


def _keep(logs: Path, outcome: Outcome) -> None:
    """A script that made a run of ike's has its output there; of any other it is kept only where it failed."""
    if outcome.run_folder is not None and outcome.logs == logs:
        shutil.move(logs, outcome.run_folder / "ranks")  # across file systems, which had to wait for the end
    elif outcome.run_folder is None and outcome.exit_code == 0:
        shutil.rmtree(logs)
