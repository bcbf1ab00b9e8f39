"""The process that keeps this host's ranks, by torch's elastic agent.

`python -m ike_launch.agent JOB LIFELINE`: JOB is the file that `Job.write` made, LIFELINE the descriptor of a pipe
whose other end the launcher holds. A byte on it says go; its end says that the launcher is gone, and so the ranks go
too. This is the only module of the package that imports torch.
"""

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # documented, not re-exported
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.api import SubprocessContext
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from ike_launch.job import FAILURE_GRACE_SECONDS, MONITOR_SECONDS, Job


class OneHost(RendezvousHandler):
    """torch's c10d rendezvous chooses MASTER_PORT itself, whatever its endpoint; and here is nobody to wait for."""

    def __init__(self, host: str, port: int, run_id: str) -> None:
        """`port` 0: a free one, chosen by the system when the store binds it. RuntimeError where it is taken."""
        self._run_id = run_id
        self._host = host
        self._store = TCPStore(host, port, is_master=True, wait_for_workers=False)

    def next_rendezvous(self) -> RendezvousInfo:
        """This agent is the first of one, and its store is the ranks'."""
        meeting_point = RendezvousStoreInfo(self._host, self._store.port)
        return RendezvousInfo(
            PrefixStore(self._run_id, self._store), rank=0, world_size=1, bootstrap_store_info=meeting_point
        )

    @property
    def use_agent_store(self) -> bool:
        """The ranks are clients of it: none hosts one at MASTER_PORT."""
        return True

    def get_backend(self) -> str:
        return "one-host"

    def get_run_id(self) -> str:
        return self._run_id

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nobody else would join."""

    def num_nodes_waiting(self) -> int:
        return 0

    def shutdown(self) -> bool:
        return True


class RankLogs(LogsSpecs):
    """Every rank's output and failure in files of its own; the ranks are told where by their environment."""

    def __init__(self, job: Job) -> None:
        super().__init__(str(job.logs))
        self._job = job

    @property
    def root_log_dir(self) -> str:
        return str(self._job.logs)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Called by torch just before the ranks start, with the environment of each: the one place to add to it."""
        destinations = LogsDest()
        for local_rank, environment in envs.items():
            rank = int(environment["RANK"])
            # torch opens both for writing from the start: two streams in one file would overwrite each other.
            destinations.stdouts[local_rank] = str(self._job.stdout(rank))
            destinations.stderrs[local_rank] = str(self._job.stderr(rank))
            destinations.error_files[local_rank] = environment["TORCHELASTIC_ERROR_FILE"] = str(
                self._job.torch_error(rank)
            )
            environment["IKE_FAILURE_FILE"] = str(self._job.failure(rank))
        return destinations


class RankAgent(LocalElasticAgent):
    """torch's agent with a shorter grace after a failure, and with a note of who failed before anyone was stopped."""

    def __init__(self, spec: WorkerSpec, job: Job) -> None:
        super().__init__(spec, RankLogs(job))
        self._job = job
        self.failed_by_themselves: list[int] = []

    def exit_codes(self) -> dict[int, int | None]:
        """Of each rank; negative: killed by that signal; None: still there."""
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        handlers = self._pcontext.subprocess_handlers
        return {worker.global_rank: handlers[worker.local_rank].proc.poll() for worker in self._worker_group.workers}

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        pids: dict[int, Any] = super()._start_workers(worker_group)
        self._job.note("started", pids=list(pids.values()))
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        # On a failure torch itself would close its context with 30 s of grace, a number that nothing sets: a survivor
        # that catches SIGTERM would hold the run that long. So it is closed here, before torch looks.
        failed = [rank for rank, code in self.exit_codes().items() if code]
        if failed and self._pcontext is not None:
            self.failed_by_themselves = failed
            self._pcontext.close(signal.SIGTERM, timeout=FAILURE_GRACE_SECONDS)
        result: RunResult = super()._monitor_workers(worker_group)
        if not failed:  # it may have ended between our look and torch's, which then has stopped the others
            stopped = (-signal.SIGTERM, -signal.SIGKILL)
            self.failed_by_themselves = [rank for rank, each in result.failures.items() if each.exitcode not in stopped]
        return result


def build_agent(job: Job) -> RankAgent:
    """Binds the port where the ranks meet."""
    # torch substitutes ${local_rank}, and turns $$ into $, in every argument: escaped, each arrives as it was given.
    command, *arguments = [job.command[0], *(argument.replace("$", "$$") for argument in job.command[1:])]
    spec = WorkerSpec(
        role="rank",
        local_world_size=job.ranks,
        rdzv_handler=OneHost(job.host, job.port, job.launch_id),
        entrypoint=command,
        args=tuple(arguments),
        max_restarts=0,
        monitor_interval=MONITOR_SECONDS,
        local_addr=job.host,
    )
    return RankAgent(spec, job)


def die_with_the_launcher(lifeline: int) -> None:
    """Stops the ranks when the other end of the pipe closes, however the launcher ended."""

    def wait() -> None:
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    job = Job.read(Path(sys.argv[1]))
    lifeline = int(sys.argv[2])
    logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)
    if not os.read(lifeline, 1):
        return 0
    die_with_the_launcher(lifeline)
    agent = build_agent(job)
    with suppress(SignalException):  # the launcher knows what it has sent
        agent.run()
    codes = agent.exit_codes()
    job.note("ended", exit_codes=codes, failed=agent.failed_by_themselves)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking torch down in order takes 0.3 s, and there is nothing left to keep
