"""Ranks for tests whose subject is not how ranks are started: forks of processes that have imported torch already.

Importing torch, DeepSpeed and transformers takes 6 s of a core, which most tests would spend again for every rank.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

LOOK_SECONDS = 0.05
FAILURE_GRACE_SECONDS = 10.0
"""What the others have left when a rank has failed: they fail alike, or wait for it in a collective for ever."""
SAID = 6000  # characters of each stream in a failing test's message


@attrs.frozen
class Ended:
    """How ranks ended, and what each said; by rank."""

    codes: list[int]
    stdout: list[str]
    stderr: list[str]

    def check(self) -> Self:
        """Fails the test, with what each rank said, unless all ended well."""
        assert not any(self.codes), str(self)
        return self

    def __str__(self) -> str:
        return "\n".join(
            f"rank {rank} ended with {code}\n{self.stdout[rank][-SAID:]}\n{self.stderr[rank][-SAID:]}"
            for rank, code in enumerate(self.codes)
        )


class Server:
    """A rank_server.py."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Unless it has been; it answers when its imports are done."""
        if self._process is None:
            command = [sys.executable, str(Path(__file__).with_name("rank_server.py"))]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )

    def ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            assert answer, f"the rank server ended with {self._process.wait()}; its stderr says why"
        except BaseException:  # a test's timeout too: the answer would be taken for that of the next request
            self.close()
            raise
        return json.loads(answer)

    def close(self) -> None:
        if self._process is not None:
            with suppress(BrokenPipeError):  # it has ended by itself
                self._process.communicate()  # closes its stdin, which is its end
            self._process = None


class Ranks:
    """`ranks(2, "script.py", "word")`: runs `python script.py word` on two ranks to their end."""

    def __init__(self) -> None:
        # A hash seed is a process's own, and kept by its forks. With two, a collective in the order of a set still
        # meets in another order on ranks that are neighbours.
        self._servers = (Server(), Server())

    def __call__(
        self, size: int, *command: str | Path, deadline_seconds: float, cwd: Path | None = None, **environment: str
    ) -> Ended:
        """What the ranks said and ended with. Beside RANK and its like they have the test's own environment."""
        with tempfile.TemporaryDirectory(prefix="ike-test-ranks-") as folder, meeting() as port:
            shared = {**os.environ, **environment, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(size)}
            shared |= {"LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            shared["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # nobody binds the port: `meeting` has
            streams = [{name: f"{folder}/{rank}.{name}" for name in ("stdout", "stderr")} for rank in range(size)]
            requests = [
                {
                    "command": list(map(str, command)),
                    "cwd": str(cwd or Path.cwd()),
                    "environment": {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    **streams[rank],
                }
                for rank in range(size)
            ]
            codes = self._run(requests, deadline_seconds)
            said = {
                name: [Path(files[name]).read_text(errors="replace") for files in streams]
                for name in ("stdout", "stderr")
            }
            return Ended(codes, **said)

    def _run(self, requests: list[dict[str, Any]], deadline_seconds: float) -> list[int]:
        """Exit codes by rank; -9 of those that were killed, at the deadline or some time after another's failure."""
        pids: list[int] = []
        codes: dict[int, int] = {}
        for server in self._servers[: len(requests)]:
            server.start()
        try:
            for rank, request in enumerate(requests):
                pids.append(self._servers[rank % 2].ask(request))
            deadline = time.monotonic() + deadline_seconds
            while len(codes) < len(pids) and time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
                had_failed = any(codes.values())
                codes |= self._ended(pids)
                if any(codes.values()) and not had_failed:
                    deadline = min(deadline, time.monotonic() + FAILURE_GRACE_SECONDS)
        finally:
            for pid in set(pids) - codes.keys():
                kill(pid)
        while len(codes) < len(pids):
            time.sleep(LOOK_SECONDS)
            codes |= self._ended(pids)
        return [codes[pid] for pid in pids]

    def _ended(self, pids: list[int]) -> dict[int, int]:
        """Of those only: an interrupted test leaves ranks that were killed and not asked after."""
        found = [server.ask({}) for server in self._servers[: len(pids)]]
        return {int(pid): code for answer in found for pid, code in answer.items() if int(pid) in pids}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()


def kill(pid: int) -> None:
    """With its own children, if it leads its group yet; it is there, running or not, until its server is asked."""
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            end(pid, signal.SIGKILL)


@contextmanager
def meeting() -> Iterator[int]:
    """A port where ranks meet: bound before they are told of it, so that none is taken in between."""
    from torch.distributed import TCPStore  # 1.7 s: paid only by who starts ranks

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store.port
