"""From a started agent to its end: shows what the ranks say, hands signals on, finds out why they failed."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import attrs

from ike_core.errors import LaunchError
from ike_launch.agent_process import AgentProcess
from ike_launch.failures import Failure, first_failure
from ike_launch.folders import move_logs
from ike_launch.interruption import Interruption, last_saved
from ike_launch.job import Job
from ike_launch.relay import Relay, Tail
from ike_launch.screen import Screen

POLL_SECONDS = 0.1


@attrs.frozen
class Outcome:
    """How the ranks ended."""

    exit_code: int
    logs: Path
    """Folder of their output."""
    run_folder: Path | None = None
    failure: Failure | None = None
    interruption: Interruption | None = None


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """SIGINT, SIGTERM and SIGHUP, in the order in which they come, instead of what they do.

    One that is ignored already (SIGHUP under nohup, SIGINT in a script's background) stays so.
    """
    came: list[int] = []

    def note(signum: int, _: FrameType | None) -> None:
        came.append(signum)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for each, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(each, note)
    try:
        yield came
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@attrs.define
class Supervisor:
    """Watches one launch."""

    agent: AgentProcess
    screen: Screen
    job: Job
    """As the agent's, but for where the logs lie by now."""
    relay: Relay
    _progress: Tail
    _run_folder: Path | None = None
    """Once rank 0 has said it."""
    _step: int | None = None
    """The last that rank 0 has said."""
    _steps: int | None = None
    _handed_on: int = 0
    """Signals."""

    @classmethod
    def of(cls, agent: AgentProcess, screen: Screen) -> "Supervisor":
        return cls(agent, screen, agent.job, Relay(agent.job, screen), Tail(agent.job.progress_file))

    def run(self) -> Outcome:
        """Lets the ranks start; returns when the agent has ended."""
        with noted_signals() as came:
            self.agent.go()
            while self.agent.is_running():
                self._hand_on(came)
                self._show()
                time.sleep(POLL_SECONDS)
            self._show()
        return self._outcome(came)

    def _show(self) -> None:
        self.relay.pump()
        for line in self._progress.lines():
            said = json.loads(line)
            self._step, self._steps = said.get("step", self._step), said.get("steps", self._steps)
            self.screen.progress(said)
        if self._run_folder is None and self.job.run_file.exists():
            folder = Path(self.job.run_file.read_text())
            if folder.is_absolute():  # else it is being written just now
                self._run_folder = folder
                self.job = move_logs(self.job, folder)
                self.relay.moved(self.job)

    def _hand_on(self, came: list[int]) -> None:
        for signum in came[self._handed_on :]:
            if self._handed_on == 0:
                told = f"ike-launch: {signal.Signals(signum).name}: the ranks are told to stop; once more kills them"
                self.screen.line(told, is_error=True)
                self.relay.stopping()
                self.agent.stop(signum)
            else:
                self.agent.kill()
            self._handed_on += 1

    def _outcome(self, came: list[int]) -> Outcome:
        ended = next((event for event in self.job.events() if event["event"] == "ended"), None)
        codes = {int(rank): code for rank, code in ended["exit_codes"].items()} if ended else {}
        failed_by_themselves = ended["failed"] if ended else []
        all_well = ended is not None and not any(codes.values())
        unsaid = self.relay.finish(failed=not all_well)
        self.screen.close()
        if all_well:
            return Outcome(0, self.job.logs, self._run_folder)
        if came and not failed_by_themselves:
            interruption = self._interruption(came[0])
            return Outcome(128 + came[0], self.job.logs, self._run_folder, interruption=interruption)
        if ended is None:
            self.agent.kill()  # its ranks may have outlived it
            raise self.agent.ended_early()
        failure = first_failure(self.job, codes, failed_by_themselves, unsaid)
        if failure is None:
            raise LaunchError(
                f"the ranks' agent was stopped, not by this launcher; output of all ranks: {self.job.logs}"
            )
        return Outcome(failure.exit_code, self.job.logs, self._run_folder, failure)

    def _interruption(self, signum: int) -> Interruption:
        return Interruption(
            signal=signal.Signals(signum).name,
            step=self._step,
            steps=self._steps,
            run_folder=self._run_folder,
            logs=self.job.logs,
            saved=last_saved(self.job),
        )
