"""Which rank failed first, and what it said."""

import json
import re
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from ike_core.errors import IkeError
from ike_launch.job import Job

LINES_SHOWN = 40
_CONSEQUENCES = re.compile(
    # gloo and sockets
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe|Application timeout caused pair"
    # torch's stores
    r"|DistNetworkError|DistStoreError|failed to recv, got 0 bytes"
    # NCCL
    r"|ncclRemoteError|remote process exited or there was a network error|NCCL communicator was aborted"
)
"""What a rank says when another has gone: told as the cause only where there is no other."""

FOR_THE_USER = {error.__name__ for error in IkeError.__subclasses__()}
_TORCH_PREFIX = re.compile(r"^\[rank\d+\]: ")  # of its excepthook


@attrs.frozen(kw_only=True)
class Failure:
    """How a rank ended."""

    rank: int
    exit_code: int
    """What the launcher ends with for it: the rank's own, or 128 + the signal that killed it."""
    signal: str | None = None
    is_early: bool = False
    """It ended with exit code 0, and the others could not go on without it."""
    step: int | None = None
    """Updates finished, where the rank knows."""
    kind: str | None = None
    """Name of the exception's class."""
    message: str = ""
    lines: Sequence[str] = ()
    """What it said last: its traceback, or the end of its output."""
    time: float = 0.0
    """Seconds since the epoch; 0: it left no trace."""

    @property
    def is_consequence(self) -> bool:
        """Whether it only says that another rank has gone."""
        return bool(_CONSEQUENCES.search("\n".join([self.kind or "", self.message, *self.lines[-LINES_SHOWN:]])))

    def report(self, ranks: int, logs: Path) -> str:
        """For the screen; the exception is the last line."""
        ended = f"was killed by {self.signal}" if self.signal else f"ended with exit code {self.exit_code}"
        if self.is_early:
            ended = "ended early with exit code 0"
        at = f" at step {self.step}" if self.step is not None else ""
        head = f"rank {self.rank} of {ranks} on {socket.gethostname()} {ended}{at}; output of all ranks: {logs}"
        said = list(self.lines[-LINES_SHOWN:])
        if self.message and not (said and said[-1].endswith(self.message.splitlines()[-1])):
            said += f"{self.kind}: {self.message}".splitlines() if self.kind else self.message.splitlines()
        return "\n".join([head, *said])

    def write(self, path: Path, *, ranks: int, logs: Path) -> None:
        """failure.json"""
        facts = {"host": socket.gethostname(), "ranks": ranks, "logs": str(logs), **attrs.asdict(self)}
        path.write_text(json.dumps(facts, indent=2) + "\n")


def read_failure(job: Job, rank: int, code: int, unsaid: Sequence[str], *, by_itself: bool) -> Failure:
    """From the process's end and what the rank left: its failure file, else its stderr.

    `unsaid` are the lines of stderr that the screen has not shown; of a rank that was killed only these can be about
    its end.
    """
    left = _left(job.failure(rank))
    told = (
        left.get("kind") in FOR_THE_USER
    )  # its message says it all: where in our code it was raised is nobody's business
    lines = (
        []
        if told
        else left.get("traceback", "").splitlines()
        or list(unsaid)
        or (_last_lines(job.stderr(rank)) if code > 0 else [])
    )
    lines = [_TORCH_PREFIX.sub("", line) for line in lines]
    # A rank that was raising when we stopped it would have ended with 1.
    code = code if by_itself or code > 0 else 1
    return Failure(
        rank=rank,
        exit_code=code if code >= 0 else 128 - code,
        signal=signal.Signals(-code).name if code < 0 else None,
        step=left.get("step"),
        kind=left.get("kind"),
        message=left.get("message", ""),
        lines=lines,
        time=left.get("time") or _last_write(job.stderr(rank)),
    )


def first_failure(
    job: Job,
    exit_codes: Mapping[int, int | None],
    failed_by_themselves: Iterable[int],
    unsaid: Mapping[int, Sequence[str]],
) -> Failure | None:
    """The cause: not a rank that only noticed another's end, then one that nobody had stopped, then the earliest.

    Where all of them only noticed, and one rank had left with exit code 0, it is that one.
    """
    by_themselves = set(failed_by_themselves)
    failures = [
        read_failure(job, rank, code, unsaid.get(rank, ()), by_itself=rank in by_themselves)
        for rank, code in exit_codes.items()
        if code and (rank in by_themselves or _was_failing(job, rank, unsaid.get(rank, ())))
    ]
    first = min(
        failures,
        key=lambda each: (each.is_consequence, each.rank not in by_themselves, each.time, each.rank),
        default=None,
    )
    early = [rank for rank, code in exit_codes.items() if code == 0]
    return _early(early[0], first) if early and first is not None and first.is_consequence else first


def _early(rank: int, noticed: Failure) -> Failure:
    said = noticed.message or next(reversed(noticed.lines), "")
    return Failure(
        rank=rank,
        exit_code=noticed.exit_code,
        is_early=True,
        step=noticed.step,
        message=f"the run was not done, and rank {noticed.rank} could not go on without it: {said}",
        time=noticed.time,
    )


def _was_failing(job: Job, rank: int, unsaid: Sequence[str]) -> bool:
    """Whether a rank that was stopped had begun to fail: the process of the one that failed first can end last."""
    return job.failure(rank).exists() or any("Traceback (most recent call last)" in line for line in unsaid)


def _left(path: Path) -> Mapping[str, Any]:
    try:
        left = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):  # none, or the rank died while it wrote
        return {}
    return left if isinstance(left, dict) else {}


def _last_lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-LINES_SHOWN:]


def _last_write(path: Path) -> float:
    return path.stat().st_mtime if path.stat().st_size else 0.0
