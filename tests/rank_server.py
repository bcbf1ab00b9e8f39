"""A process that has imported what ranks need, once, and is forked for every rank that is asked for.

`python tests/rank_server.py`, which tests/ranks.py starts: a request is a line of JSON on stdin, its answer a line
on stdout.

    {"command": [...], "cwd": ..., "environment": {...}, "stdout": ..., "stderr": ...}   the pid of a rank that started
    {}                                                          {pid: exit code} of those that ended since the last look

The end of stdin ends the server and the ranks that are left.

A fork is safe since the server has one thread: it computes nothing and joins no group, so no lock is held and no pool
of threads is missing in the child.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# What every run imports, so that no rank finds more than a run of its own would have. A package may be tested alone:
# what is not installed is left out.
SHARED = (
    "torch",
    "deepspeed",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "peft",
    "safetensors.torch",
    "ike_core.training",
    "ike_core.inference",
    "ike_tasks",
    "ike_data",
    "ike_ckpt",
)


def load() -> None:
    for name in SHARED:
        if find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads after the imports: a rank would start without the others"
    gc.collect()
    gc.freeze()  # else each rank's first collection looks through all modules, and so copies their pages


def serve() -> dict[str, Any] | None:
    """Answers until stdin ends, which gives None; in a rank, which is a fork of this, it returns its request."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed's imports write to stdout
    load()
    running: set[int] = set()
    while line := sys.stdin.readline():
        request = json.loads(line)
        if not request:
            answer: Any = ended(running)
        elif (answer := os.fork()) == 0:
            answers.close()
            return request
        else:
            running.add(answer)
        print(json.dumps(answer), file=answers, flush=True)
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def ended(running: set[int]) -> dict[int, int]:
    """As `Popen.returncode` says it: negative, killed by that signal."""
    codes = {}
    for pid in sorted(running):
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            codes[pid] = os.waitstatus_to_exitcode(status)
            running.remove(pid)
    return codes


def become(rank: dict[str, Any]) -> None:
    """Sets what a new process is started with."""
    os.setsid()  # its own group, which can be killed with its children
    for descriptor, path in enumerate((os.devnull, rank["stdout"], rank["stderr"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(rank["environment"])
    os.chdir(rank["cwd"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # `random` does so by itself after a fork; torch starts from a constant


def run(command: list[str]) -> None:
    """`SCRIPT ...` or `-m MODULE ...`, as python would; -m without the current folder, as under -P.

    The folder of this file stays on the path: a test's file may be its own rank, and imports `ranks`.
    """
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    rank = serve()
    if rank is not None:
        become(rank)
        run(rank["command"])  # its exception, its exit code and its end are the interpreter's, as of any process
