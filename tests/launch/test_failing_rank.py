"""One rank fails: the run ends everywhere within seconds, and the cause is told, not its consequences."""

import json
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launch.conftest import SAY_PID, Launch, Start, is_gone, pids, wait_for

pytestmark = pytest.mark.usefixtures("needs_torch")
Script = Callable[[str], str]

GLOO = f"""
{SAY_PID}
import signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
open("port", "w").write(os.environ["MASTER_PORT"])
"""


def test_a_rank_that_dies_takes_the_others_with_it(start: Start, script: Script, tmp_path: Path) -> None:
    """B101, with a survivor that catches SIGTERM and stays (torch's agent alone would wait 30 s for it)."""
    program = script(
        GLOO
        + "if rank == 1: time.sleep(1); sys.exit(1)\n"
        + "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        + "try: dist.all_reduce(torch.ones(1))\n"
        + "except RuntimeError: time.sleep(600)\n"
    )
    started = start("run", "--ranks", "2", "--", sys.executable, program)
    survivor, failing = pids(tmp_path, 2)
    wait_for(lambda: is_gone(failing))
    ended = started.wait(15)
    assert ended.code == 1
    assert "rank 1 of 2" in ended.stderr
    assert is_gone(survivor)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int((tmp_path / "port").read_text())))  # free again


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_the_cause_is_told_not_what_the_others_made_of_it(launch: Launch, script: Script, rank: int) -> None:
    """The survivor sees "Connection closed by peer" and fails by itself, often within the same look of the agent."""
    program = script(GLOO + f"if rank == {rank}: raise ValueError('the cause')\ndist.all_reduce(torch.ones(1))\n")
    ended = launch("run", "--ranks", "2", "--", sys.executable, program)
    assert ended.code == 1
    assert ended.last_line == "ValueError: the cause"
    assert ended.stderr.count("ValueError: the cause") == 1
    assert f"rank {rank} of 2 on {socket.gethostname()} ended with exit code 1" in ended.stderr
    assert "Connection closed" not in ended.stderr


def test_output_and_failure_are_kept(launch: Launch, script: Script) -> None:
    ended = launch("run", "--ranks", "2", "--", sys.executable, script("print('said')\nraise OSError('no')"))
    folder = Path(re.search(r"output of all ranks: (\S+)", ended.stderr).group(1))  # type: ignore[union-attr]
    assert [(folder / f"{rank}.log").read_text() for rank in (0, 1)] == ["said\n", "said\n"]
    assert (folder / "1.err").read_text().endswith("OSError: no\n")
    failure = json.loads((folder / "failure.json").read_text())
    assert failure["host"] == socket.gethostname()
    assert failure["exit_code"] == 1
    assert failure["lines"][-1] == "OSError: no"


@pytest.mark.slow
def test_an_error_that_a_rank_survives_is_shown(launch: Launch, script: Script) -> None:
    program = script(
        "import time, traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\n"
        "print('goes on')\ntime.sleep(4)"
    )
    ended = launch("run", "--", sys.executable, program)
    assert ended.code == 0
    assert ended.last_line == "ZeroDivisionError: division by zero"
    assert ended.stdout == "goes on\n"


def test_an_ike_run_keeps_the_output_and_what_its_rank_wrote(launch: Launch, script: Script, tmp_path: Path) -> None:
    """The worker's side of the agreement: IKE_RUN_FILE and IKE_FAILURE_FILE."""
    program = script(
        "import json, os, sys, time\n"
        "os.makedirs('runs/demo')\n"
        "open(os.environ['IKE_RUN_FILE'], 'w').write(os.path.abspath('runs/demo'))\n"
        "print('before', flush=True); time.sleep(1); print('after')\n"
        "failure = dict(rank=0, step=12, kind='DataError', message='train.jsonl:17: no messages')\n"
        "failure.update(traceback='Traceback ...', time=time.time())\n"
        "json.dump(failure, open(os.environ['IKE_FAILURE_FILE'], 'w'))\n"
        "sys.exit(3)\n"
    )
    ended = launch("run", "--", sys.executable, program)
    assert ended.code == 3
    assert ended.last_line == "DataError: train.jsonl:17: no messages"
    assert "at step 12" in ended.stderr
    assert (tmp_path / "runs/demo/ranks/0.log").read_text() == "before\nafter\n"
    assert json.loads((tmp_path / "runs/demo/failure.json").read_text())["step"] == 12


def test_a_rank_that_leaves_as_if_it_were_done_is_the_cause(launch: Launch, script: Script) -> None:
    program = script(GLOO + "if rank == 1: time.sleep(0.5); os._exit(0)\ndist.all_reduce(torch.ones(1))\n")
    ended = launch("run", "--ranks", "2", "--", sys.executable, program)
    assert ended.code == 1
    assert f"rank 1 of 2 on {socket.gethostname()} ended early with exit code 0" in ended.stderr
    assert "Traceback" not in ended.stderr
