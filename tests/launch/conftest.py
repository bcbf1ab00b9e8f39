"""Real launches in real processes, each with a deadline."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import attrs
import pytest

DEADLINE_SECONDS = 120.0


@attrs.frozen
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_line(self) -> str:
        """Of what was said on stderr."""
        return self.stderr.rstrip().splitlines()[-1]


@attrs.define
class Started:
    """A command that goes on."""

    process: "subprocess.Popen[str]"
    began: float

    def wait(self, seconds: float = DEADLINE_SECONDS) -> Ended:
        stdout, stderr = self.process.communicate(timeout=seconds)
        return Ended(self.process.returncode, stdout, stderr, time.monotonic() - self.began)


Start = Callable[..., Started]
Launch = Callable[..., Ended]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start("run", "--", ...)`: `ike-launch run -- ...` in `tmp_path`; what a test leaves is killed, by its group."""
    started: list[Started] = []
    scratch = tmp_path / "scratch"  # what a failed launch keeps goes with the test
    scratch.mkdir()

    def start(*arguments: str, environment: Mapping[str, str] | None = None) -> Started:
        process = subprocess.Popen(
            [sys.executable, "-m", "ike_launch.cli", *arguments],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(scratch), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(Started(process, time.monotonic()))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.communicate()


@pytest.fixture
def launch(start: Start) -> Launch:
    """The same, waited for."""

    def launch(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
        return start(*arguments, environment=environment).wait()

    return launch


@pytest.fixture
def needs_torch() -> None:
    """Ranks are kept by torch's agent; ike-launch alone, without torch, starts none."""
    if find_spec("torch") is None:
        pytest.skip("starts ranks, which needs torch")


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Writes a program into `tmp_path`; returns its file's name."""

    def write(text: str) -> str:
        path = tmp_path / f"script{len(list(tmp_path.glob('script*.py')))}.py"
        path.write_text(text)
        return path.name

    return write


def wait_for(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Returns when it holds; fails the test when it doesn't within so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    """Whether no process has this number, a zombie's aside."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def pids(folder: Path, ranks: int) -> Sequence[int]:
    """Of ranks that wrote them as their first act (`SAY_PID`)."""
    files = [folder / f"pid-{rank}" for rank in range(ranks)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    return [int(file.read_text()) for file in files]


SAY_PID = "import os; open('pid-' + os.environ['RANK'], 'w').write(str(os.getpid()))\n"
