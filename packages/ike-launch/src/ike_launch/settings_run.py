"""`ike-launch train` and `infer`: ranks of ike's own worker."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ike_core.config import check_parts_by_source, load_config
from ike_core.errors import IkeError
from ike_launch.devices import Gpus
from ike_launch.folders import new_launch_id, starting_folder
from ike_launch.job import Job
from ike_launch.launching import launch, require_torch
from ike_launch.plan import Plan, Purpose


class CheckError(IkeError):
    """The checking child has said what is wrong; it is passed on as it was said."""

    def __init__(self, said: str, exit_code: int) -> None:
        super().__init__(said)
        self.exit_code = exit_code


def run_settings(purpose: Purpose, layers: Sequence[str], *, dry_run: bool) -> int:
    """Runs `purpose` ('train' or 'infer') to its end; returns 0, or the exit code of what failed."""
    config = load_config(*layers)
    notes = check_parts_by_source(config)
    plan = Plan.of(config, purpose, Gpus.find())
    if dry_run:
        print("\n".join([plan.text(), *notes]))
        return 0
    require_torch()
    launch_id = new_launch_id()
    with tempfile.TemporaryDirectory(prefix="ike-launch-") as control:
        job = Job(
            # -P: no module of the current folder may stand in for one of ours or of torch's.
            command=(sys.executable, "-P", "-u", "-m", "ike_core.worker", purpose, *layers),
            ranks=plan.ranks,
            launch_id=launch_id,
            logs=starting_folder(config.run.root, launch_id),
            control=Path(control),
            port=config.launch.port,
        )
        outcome = launch(job, title=config.run.name, check=lambda: check_parts(purpose, layers))
    return outcome.exit_code


def check_parts(purpose: Purpose, layers: Sequence[str]) -> None:
    """Imports and builds all parts once, in a child, before any rank starts."""
    child = subprocess.run(
        [sys.executable, "-P", "-m", "ike_core.config.check", purpose, *layers],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if child.returncode:
        raise CheckError(child.stderr.strip(), child.returncode)
