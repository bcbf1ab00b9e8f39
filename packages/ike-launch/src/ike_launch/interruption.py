"""A run that was stopped from outside: how far it was, and what there is of it."""

from pathlib import Path

import attrs

from ike_launch.job import Job


@attrs.frozen(kw_only=True)
class Interruption:
    """A signal to the launcher, and the ranks ended by it."""

    signal: str
    """Its name."""
    step: int | None
    """Updates finished, as far as rank 0 has said."""
    steps: int | None
    """Of the whole run."""
    run_folder: Path | None
    logs: Path
    """Folder of the ranks' output."""
    saved: Path | None
    """The last step that was saved whole."""

    def report(self) -> str:
        """For the screen."""
        at = f" at step {self.step} of {self.steps}" if self.step is not None else ""
        head = f"interrupted by {self.signal}{at}"
        if self.run_folder is None:
            return f"{head}; output of all ranks: {self.logs}"
        saved = f"the last saved step is {self.saved}" if self.saved else "nothing was saved yet"
        return f"{head}; {saved}\nthe run's folder: {self.run_folder}"


def last_saved(job: Job) -> Path | None:
    """As rank 0 has told it. A line without its end was being written."""
    if not job.saved_file.exists():
        return None
    whole = [line for line in job.saved_file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return Path(whole[-1].rstrip("\n")) if whole else None
