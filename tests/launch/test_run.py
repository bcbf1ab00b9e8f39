"""`ike-launch run`: the command arrives as it was given, and its end is handed on."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launch.conftest import Launch

pytestmark = pytest.mark.usefixtures("needs_torch")
Script = Callable[[str], str]

RECORD = """
import json, os, sys
told = {"argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}
json.dump(told, open("rank-" + os.environ["RANK"], "w"))
"""


def test_ranks_get_what_torchrun_gives_them(launch: Launch, script: Script, tmp_path: Path) -> None:
    """B103 (${local_rank} and $$ are what torch's agent would have replaced), B111, and the ranks' environment."""
    given = [
        "--name",
        "Hello world!",
        "--name=Hello world!",
        "",
        "a'b\"c",
        "$$ ${local_rank} $HOME",
        "*.py",
        "--",
        "é\n",
    ]
    ended = launch(
        *["run", "--ranks", "2", "--", sys.executable, script(RECORD), *given],
        environment={"CUDA_VISIBLE_DEVICES": "3,5", "OMP_NUM_THREADS": "7"},
    )
    assert ended.code == 0, ended.stderr
    ranks = [json.loads((tmp_path / f"rank-{rank}").read_text()) for rank in (0, 1)]
    assert [rank["argv"] for rank in ranks] == [given, given]
    assert [rank["cwd"] for rank in ranks] == [str(tmp_path)] * 2
    environments = [rank["environment"] for rank in ranks]
    assert [[each["RANK"], each["LOCAL_RANK"]] for each in environments] == [["0", "0"], ["1", "1"]]
    for each in environments:
        assert (each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"], each["MASTER_ADDR"]) == ("2", "2", "127.0.0.1")
        assert each["CUDA_VISIBLE_DEVICES"] == "3,5"
        assert each["OMP_NUM_THREADS"] == "7"
        assert "LOCAL_SIZE" not in each  # DeepSpeed would take a shared-memory road that only its launcher tends
    assert int(environments[0]["MASTER_PORT"]) == int(environments[1]["MASTER_PORT"]) > 0


def test_a_failing_script_gives_its_code_and_its_error_once_and_last(launch: Launch, script: Script) -> None:
    """B99: a NameError."""
    ended = launch("run", "--ranks", "2", "--", sys.executable, script("print('started')\nundefined_name"))
    assert ended.code == 1
    assert ended.last_line == "NameError: name 'undefined_name' is not defined"
    assert ended.stderr.count("NameError") == 1
    assert sorted(ended.stdout.splitlines()) == ["[rank 1] started", "started"]


def test_the_code_of_the_one_rank_that_failed_is_handed_on(launch: Launch, script: Script) -> None:
    """B99: sys.exit(3) on rank 1 only; rank 0 would go on for a minute."""
    program = script("import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(60)")
    ended = launch("run", "--ranks", "2", "--", sys.executable, program)
    assert ended.code == 3
    assert "rank 1 of 2" in ended.stderr
    assert ended.seconds < 30


def test_a_missing_script_is_named(launch: Launch) -> None:
    """B99."""
    ended = launch("run", "--ranks", "2", "--", sys.executable, "no_such_script.py")
    assert ended.code == 2  # Python's own
    assert "no_such_script.py" in ended.last_line
    assert "No such file" in ended.last_line
    assert ended.stderr.count("can't open file") == 1


def test_a_killed_rank_is_128_and_the_signal(launch: Launch, script: Script) -> None:
    program = script("import os, signal\nprint('alive')\nos.kill(os.getpid(), signal.SIGKILL)")
    ended = launch("run", "--", sys.executable, program)
    assert ended.code == 128 + 9
    assert "rank 0 of 1" in ended.stderr
    assert "SIGKILL" in ended.stderr


def test_streams_stay_apart_and_lines_stay_whole(launch: Launch, script: Script) -> None:
    """B29: a bar that redraws itself ends as one line without a carriage return; a last line needs no newline."""
    program = script(
        "import sys\n"
        "print('to stdout')\n"
        "for step in range(20): print(f'\\r{step + 1}/20', end='', file=sys.stderr)\n"
        "print(file=sys.stderr)\n"
        "print('the end', end='')\n"
    )
    ended = launch("run", "--ranks", "2", "--", sys.executable, program)
    assert ended.code == 0
    assert "\r" not in ended.stdout + ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["[rank 1] the end", "[rank 1] to stdout", "the end", "to stdout"]
    assert sorted(ended.stderr.splitlines()) == ["20/20", "[rank 1] 20/20"]
