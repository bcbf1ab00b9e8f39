"""The script that tries a GPU says what it would run, keeps to ten minutes, and runs nothing where there is none."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def try_gpu(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "try_gpu.py"), *options]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_a_dry_run_shows_every_part_and_at_most_ten_minutes() -> None:
    done = try_gpu("--dry-run")
    *parts, last = done.stdout.splitlines()
    limits = [int(line.split()[0]) for line in parts]
    assert done.returncode == 0
    assert int(last.split()[0]) == sum(limits) <= 600
    files = re.findall(r"(?:tests|benchmarks)/\S+", done.stdout)
    assert {"tests/gpu", "benchmarks/overhead.py"} == set(files)
    assert all((ROOT / file).exists() for file in files)


def test_without_a_gpu_nothing_is_run() -> None:
    done = try_gpu()
    assert done.returncode == 1
    assert "sees no GPU" in done.stdout
    assert "pytest" not in done.stdout
