"""The ranks' output, from their files to the terminal."""

import math
import re
import time
from collections import deque
from pathlib import Path

import attrs

from ike_launch.job import Job
from ike_launch.screen import Screen

STDERR_SECONDS = 0.5
"""stderr is shown this late: the last words of a rank that dies are then told once, by the report of its failure."""
ERROR_SECONDS = 3.0
"""The same for what looks like the end of a program: tearing torch down after a traceback takes a while."""
_LOOKS_LIKE_THE_END = re.compile(
    r"(\[rank\d+\]: )?"  # torch's excepthook puts it before each line
    r'(Traceback \(most recent call last\)|  File ".*", line \d+|Fatal Python error'
    r"|\S*python\S*: (can't open file|No module named|Error while finding))"
)


@attrs.define
class Tail:
    """Complete lines of a file that grows."""

    path: Path
    unfinished: bytes = b""
    """What has no newline yet."""
    _offset: int = 0

    def lines(self) -> list[str]:
        """Those that were finished since the last call."""
        grown = self._grown()
        self._offset += len(grown)
        *finished, rest = (self.unfinished + grown).split(b"\n")
        # Of a bar that draws itself over and over only the last drawing matters; one more, as \r may begin a \r\n.
        self.unfinished = b"\r".join(rest.split(b"\r")[-2:])
        return [_as_seen(line) for line in finished]

    def _grown(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                return file.read()
        except FileNotFoundError:  # nobody has written yet
            return b""

    def rest(self) -> list[str]:
        """The last line, where the file does not end with a newline."""
        unfinished, self.unfinished = self.unfinished, b""
        return [_as_seen(unfinished)] if unfinished else []


def _as_seen(line: bytes) -> str:
    """What a terminal would show in the end: the last thing that was drawn between carriage returns."""
    drawn = [part for part in line.decode(errors="replace").split("\r") if part]
    return drawn[-1] if drawn else ""


@attrs.define
class _Line:
    text: str
    is_error: bool
    """From stderr."""
    due: float
    """On the monotonic clock."""


@attrs.define
class RankOutput:
    """Both streams of a rank, in order, with what is not to be shown yet."""

    stdout: Tail
    stderr: Tail
    _waiting: deque[_Line] = attrs.Factory(deque)
    is_stopping: bool = False
    """It was told to end, so how it does is no news: what looks like the end of a program is held to the last."""
    _ending: bool = False
    """The last lines of stderr look like the end of a program."""

    def take(self, now: float, *, last: bool) -> None:
        """Reads what is new; `last`: also what has no newline."""
        for text in self.stdout.lines() + (self.stdout.rest() if last else []):
            self._ending = False
            self._waiting.append(_Line(text, is_error=False, due=now))
        for text in self.stderr.lines() + (self.stderr.rest() if last else []):
            self._ending = self._ending or bool(_LOOKS_LIKE_THE_END.match(text))
            seconds = (math.inf if self.is_stopping else ERROR_SECONDS) if self._ending else STDERR_SECONDS
            self._waiting.append(_Line(text, is_error=True, due=now + seconds))

    def due(self, now: float) -> list[_Line]:
        """Lines to show, in the order in which they were read."""
        shown = []
        while self._waiting and self._waiting[0].due <= now:
            shown.append(self._waiting.popleft())
        return shown

    def held(self) -> list[_Line]:
        """All that was not shown."""
        held = list(self._waiting)
        self._waiting.clear()
        return held


class Relay:
    """Rank 0's lines as they are, those of the others behind `[rank N] `."""

    def __init__(self, job: Job, screen: Screen) -> None:
        self._screen = screen
        self._ranks = {rank: RankOutput(Tail(job.stdout(rank)), Tail(job.stderr(rank))) for rank in range(job.ranks)}

    def pump(self) -> None:
        """Shows what is due, and the line that rank 0 has not finished: a bar of its own, perhaps."""
        now = time.monotonic()
        for rank, output in self._ranks.items():
            output.take(now, last=False)
            for line in output.due(now):
                self._print(rank, line)
        first = self._ranks[0]
        for tail, is_error in ((first.stdout, False), (first.stderr, True)):
            if tail.unfinished:
                self._screen.unfinished(_as_seen(tail.unfinished), is_error=is_error)

    def finish(self, *, failed: bool) -> dict[int, list[str]]:
        """Shows what is left; after a failure only stdout: what stderr said is returned, by rank, for the report."""
        unsaid: dict[int, list[str]] = {}
        for rank, output in self._ranks.items():
            output.take(time.monotonic(), last=True)
            for line in output.held():
                if failed and line.is_error:
                    unsaid.setdefault(rank, []).append(line.text)
                else:
                    self._print(rank, line)
        return unsaid

    def stopping(self) -> None:
        """The ranks have been told to end."""
        for output in self._ranks.values():
            output.is_stopping = True

    def moved(self, job: Job) -> None:
        """The files have another folder now."""
        for rank, output in self._ranks.items():
            output.stdout.path, output.stderr.path = job.stdout(rank), job.stderr(rank)

    def _print(self, rank: int, line: _Line) -> None:
        self._screen.line(line.text if rank == 0 else f"[rank {rank}] {line.text}", is_error=line.is_error)
