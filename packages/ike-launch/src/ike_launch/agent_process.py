"""The agent, seen from the launcher."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

import attrs

from ike_core.errors import LaunchError
from ike_launch.job import FAILURE_GRACE_SECONDS, STOP_GRACE_SECONDS, Job


@attrs.define
class AgentProcess:
    """Started while the launcher still checks the settings (importing torch takes it 1.6 s); its ranks wait for `go`.

    Leaving the context ends whatever is left: the ranks, then the agent.
    """

    job: Job
    _process: subprocess.Popen[bytes]
    _lifeline: int
    """Descriptor of the pipe whose end is the end of the agent and of its ranks."""
    _has_gone: bool = False

    @classmethod
    def start(cls, job: Job, environment: Mapping[str, str]) -> Self:
        reading, writing = os.pipe()
        # -P: no module of the current folder may stand in for one of ours or of torch's.
        command = [sys.executable, "-P", "-m", "ike_launch.agent", str(job.write()), str(reading)]
        with job.agent_log.open("wb") as log:
            # A session of its own: Ctrl-C reaches the launcher alone, which hands it on once.
            process = subprocess.Popen(
                command, env=dict(environment), stdout=log, stderr=log, pass_fds=[reading], start_new_session=True
            )
        os.close(reading)
        return cls(job, process, writing)

    def go(self) -> None:
        """Lets the ranks start, and makes their files."""
        try:
            self.job.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(
                f"no folder for the run could be made at {self.job.logs}: {error}; set run.root"
            ) from error
        for rank in range(self.job.ranks):
            self.job.stdout(rank).touch()
            self.job.stderr(rank).touch()
        self._has_gone = True
        try:
            os.write(self._lifeline, b"g")
        except BrokenPipeError:
            raise self.ended_early() from None

    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self, signum: int) -> None:
        """Hands a signal on: the agent gives it to its ranks, with grace."""
        if self.is_running():
            self._process.send_signal(signum)

    def kill(self) -> None:
        """Ends the ranks and the agent at once."""
        for event in self.job.events():
            for pid in event.get("pids", ()):
                _kill_group(pid)
        self._process.kill()
        self._process.wait()

    def ended_early(self) -> LaunchError:
        """What to say where the agent did not tell how its ranks ended."""
        said = self.job.agent_log.read_text(errors="replace").strip().splitlines()
        where = f"{self.job.host}:{self.job.port}" if self.job.port else self.job.host
        return LaunchError(
            f"the agent that keeps the ranks at {where} ended with code {self._process.wait()}"
            + "".join(f"\n  {line}" for line in said[-20:])
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lifeline)
        if not self._has_gone:
            self._process.kill()  # no rank has started: nothing is lost
        try:
            self._process.wait(STOP_GRACE_SECONDS + FAILURE_GRACE_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self.kill()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):  # gone already
        os.killpg(pid, signal.SIGKILL)  # every rank leads a session, and so a group, of its own
