"""What is to be started, and the files through which launcher, agent and ranks know of each other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import attrs

MONITOR_SECONDS = 0.1
"""How often the agent looks at its ranks: a failure is seen within this."""
FAILURE_GRACE_SECONDS = 3
"""Between SIGTERM and SIGKILL for the ranks that survive a failed one."""
STOP_GRACE_SECONDS = 30
"""The same after a signal to the launcher, in which a rank may save; torch's agent sets it."""


@attrs.frozen(kw_only=True)
class Job:
    """Some ranks of one command on this host."""

    command: tuple[str, ...]
    """Program and arguments, handed on element by element."""
    ranks: int
    launch_id: str
    logs: Path
    """Folder of the ranks' output: `<rank>.log` (stdout) and `<rank>.err` (stderr)."""
    control: Path
    """Folder of everything else; private to the launch, gone when it ends."""
    host: str = "127.0.0.1"
    """Where the ranks meet."""
    port: int = 0
    """0: a free one."""

    @property
    def run_file(self) -> Path:
        """Rank 0 writes the absolute path of the run's folder here as soon as it exists (IKE_RUN_FILE)."""
        return self.control / "run"

    @property
    def progress_file(self) -> Path:
        """Rank 0 appends JSON lines here: step, steps, loss ... (IKE_PROGRESS_FILE)."""
        return self.control / "progress.jsonl"

    @property
    def saved_file(self) -> Path:
        """Rank 0 appends the absolute path of each step it has saved, a line each (IKE_SAVED_FILE)."""
        return self.control / "saved"

    @property
    def agent_log(self) -> Path:
        return self.control / "agent.log"

    @property
    def _events(self) -> Path:
        return self.control / "agent.jsonl"

    def stdout(self, rank: int) -> Path:
        return self.logs / f"{rank}.log"

    def stderr(self, rank: int) -> Path:
        return self.logs / f"{rank}.err"

    def failure(self, rank: int) -> Path:
        """What a rank of ike's own says of its end (IKE_FAILURE_FILE): rank, step, kind, message, traceback, time."""
        return self.control / f"failure-{rank}.json"

    def torch_error(self, rank: int) -> Path:
        """What torch's `@record` writes."""
        return self.control / f"torch-error-{rank}.json"

    def note(self, event: str, **facts: Any) -> None:
        """Appends one of the agent's events."""
        with self._events.open("a") as file:
            file.write(json.dumps({"event": event, **facts}) + "\n")

    def events(self) -> Iterator[dict[str, Any]]:
        """The agent's events so far."""
        if self._events.exists():
            yield from map(json.loads, self._events.read_text().splitlines())

    def write(self) -> Path:
        """Into the control folder, for the agent."""
        path = self.control / "job.json"
        path.write_text(json.dumps(attrs.asdict(self), default=str))
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        fields = json.loads(path.read_text())
        return cls(
            **{
                **fields,
                "command": tuple(fields["command"]),
                "logs": Path(fields["logs"]),
                "control": Path(fields["control"]),
            }
        )
