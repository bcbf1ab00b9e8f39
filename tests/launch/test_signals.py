"""Who stops the launcher stops its ranks."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launch.conftest import SAY_PID, Start, is_gone, pids, wait_for

pytestmark = pytest.mark.usefixtures("needs_torch")
Script = Callable[[str], str]


@pytest.mark.parametrize("signum", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_is_handed_on_once(start: Start, script: Script, tmp_path: Path, signum: signal.Signals) -> None:
    """The ranks do what they have to, and their end is the launcher's."""
    program = script(
        "import os, signal, sys, time\n"
        "def note(signum, _): print('got', signum, flush=True); time.sleep(0.5); sys.exit(0)\n"
        f"signal.signal({int(signum)}, note)\n" + SAY_PID + "time.sleep(600)\n"
    )
    started = start("run", "--ranks", "2", "--", sys.executable, program)
    ranks = pids(tmp_path, 2)
    os.killpg(started.process.pid, signum)  # to the whole group, as a terminal's Ctrl-C
    ended = started.wait(20)
    assert sorted(ended.stdout.splitlines()) == [f"[rank 1] got {int(signum)}", f"got {int(signum)}"]
    assert ended.code == 0
    assert all(map(is_gone, ranks))


def test_ranks_that_end_by_the_signal_give_its_code(start: Start, script: Script, tmp_path: Path) -> None:
    started = start("run", "--ranks", "2", "--", sys.executable, script(SAY_PID + "import time; time.sleep(600)"))
    ranks = pids(tmp_path, 2)
    started.process.send_signal(signal.SIGINT)
    ended = started.wait(20)
    assert ended.code == 128 + signal.SIGINT
    assert "KeyboardInterrupt" not in ended.stderr  # nothing has failed
    assert all(map(is_gone, ranks))


def test_a_second_signal_kills(start: Start, script: Script, tmp_path: Path) -> None:
    program = script(
        "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: print('not yet', flush=True))\n"
        + SAY_PID
        + "end = time.time() + 600\nwhile time.time() < end: time.sleep(1)\n"
    )
    started = start("run", "--ranks", "2", "--", sys.executable, program)
    ranks = pids(tmp_path, 2)
    started.process.send_signal(signal.SIGINT)
    assert started.process.stdout is not None
    assert "not yet" in started.process.stdout.readline()
    assert not any(map(is_gone, ranks))
    started.process.send_signal(signal.SIGINT)
    assert started.wait(10).code == 128 + signal.SIGINT
    assert all(map(is_gone, ranks))


def test_a_killed_launcher_leaves_no_rank(start: Start, script: Script, tmp_path: Path) -> None:
    started = start("run", "--ranks", "2", "--", sys.executable, script(SAY_PID + "import time; time.sleep(600)"))
    ranks = pids(tmp_path, 2)
    os.kill(started.process.pid, signal.SIGKILL)
    wait_for(lambda: all(map(is_gone, ranks)), seconds=20)


@pytest.mark.slow
def test_an_agent_that_someone_else_stops_is_no_success(start: Start, script: Script, tmp_path: Path) -> None:
    program = script(SAY_PID + "open('agent', 'w').write(str(os.getppid()))\nimport time; time.sleep(600)")
    started = start("run", "--", sys.executable, program)
    ranks = pids(tmp_path, 1)
    wait_for(lambda: (tmp_path / "agent").exists() and bool((tmp_path / "agent").read_text()))
    os.kill(int((tmp_path / "agent").read_text()), signal.SIGTERM)
    ended = started.wait(20)
    assert ended.code == 5
    assert "not by this launcher" in ended.stderr
    assert all(map(is_gone, ranks))


@pytest.mark.slow
def test_a_killed_agent_leaves_no_rank(start: Start, script: Script, tmp_path: Path) -> None:
    program = script(SAY_PID + "open('agent', 'w').write(str(os.getppid()))\nimport time; time.sleep(600)")
    started = start("run", "--", sys.executable, program)
    ranks = pids(tmp_path, 1)
    wait_for(lambda: (tmp_path / "agent").exists() and bool((tmp_path / "agent").read_text()))
    os.kill(int((tmp_path / "agent").read_text()), signal.SIGKILL)
    ended = started.wait(20)
    assert ended.code == 5
    assert "ended with code -9" in ended.stderr
    assert all(map(is_gone, ranks))
