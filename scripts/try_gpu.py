"""`python scripts/try_gpu.py`: the tests of tests/gpu, then the overhead of a step, on this machine's GPU.

Ten minutes at most: each part has a limit and is stopped at it. `--dry-run` shows what would run, anywhere. Works from
a checkout that is not installed; without DeepSpeed the plain engine alone is tried.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NEEDED = "torch transformers safetensors attrs cattrs tomli tomli-w rich orjson pytest hypothesis".split()
SHOWN = "torch triton transformers deepspeed".split()


class Part(NamedTuple):
    """A command, and how long it may take."""

    name: str
    arguments: tuple[str, ...]
    limit_seconds: int
    needs_deepspeed: bool = False


PARTS = (
    Part("tests", ("-m", "pytest", "tests/gpu", "-q", "-rs", "--durations=10", "-p", "no:cacheprovider"), 390),
    Part("overhead, ZeRO-1", ("benchmarks/overhead.py", "--steps", "500", "--zero-stage", "1"), 100, True),
    Part("overhead, ZeRO-3", ("benchmarks/overhead.py", "--steps", "500", "--zero-stage", "3"), 100, True),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="show the commands and their limits; run nothing")
    if parser.parse_args().dry_run:
        for part in PARTS:
            print(f"{part.limit_seconds:4} s  {part.name:18} {shlex.join((sys.executable, *part.arguments))}")
        print(f"{sum(part.limit_seconds for part in PARTS):4} s  at most")
        return 0
    missing = [name for name in NEEDED if not _version(name)]
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install {' '.join(missing)}")
        return 1
    if not _introduce():
        print("this torch sees no GPU; --dry-run shows what would run on one")
        return 1
    print(flush=True)
    return _summarize([(part, *_run(part)) for part in PARTS])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _introduce() -> bool:
    """Prints the versions and the device; whether there is one. In a child: this process holds no GPU memory."""
    print(f"python {sys.version.split()[0]}", *(f"{name} {_version(name) or 'absent'}" for name in SHOWN), sep="  ")
    look = (
        "import torch\n"
        "here = torch.cuda.is_available()\n"
        "it = torch.cuda.get_device_properties(0) if here else None\n"
        "print(f'{it.name}, {it.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}' if it else 'no GPU')\n"
        "raise SystemExit(not here)"
    )
    return subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def _run(part: Part) -> tuple[str, float]:
    """How it ended, and the seconds it took."""
    if part.needs_deepspeed and find_spec("deepspeed") is None:
        return "left out: needs DeepSpeed", 0.0
    print(f"$ {shlex.join(('python', *part.arguments))}", flush=True)
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, *part.arguments], cwd=ROOT, env=_environment(), start_new_session=True)
    try:
        code = child.wait(part.limit_seconds)
        ended = "passed" if code == 0 else f"failed with exit code {code}"
    except subprocess.TimeoutExpired:
        ended = f"stopped at its limit of {part.limit_seconds} s"
    finally:
        _end(child)
    return ended, time.perf_counter() - start


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The child and what it started, such as the workers of a compiler."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _environment() -> dict[str, str]:
    """The packages' sources come first, whether they are installed or not."""
    sources = [str(source) for source in sorted(ROOT.glob("packages/*/src"))]
    inherited = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sources + inherited), "PYTHONUNBUFFERED": "1"}


def _summarize(ended: list[tuple[Part, str, float]]) -> int:
    """Prints a line a part; 0 where none failed."""
    print()
    for part, outcome, seconds in ended:
        print(f"{part.name:18} {seconds:5.0f} of {part.limit_seconds} s  {outcome}")
    return int(any(outcome.startswith(("failed", "stopped")) for _, outcome, _ in ended))


if __name__ == "__main__":
    sys.exit(main())
