"""Case B85: a process killed, or a disk that is full, in the middle of a save. What was complete still is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ike_ckpt import read_weights

SAVE = """
import functools, os, resource, signal, sys
from pathlib import Path
import torch
import ike_ckpt.model_folder
from ike_ckpt import SafetensorsStore
from ike_core.interfaces import SavedModel
from ike_core.progress import Progress

run, kind = Path(sys.argv[1]), sys.argv[2]
write = functools.partial(ike_ckpt.model_folder.write_weights, shard_bytes=4000)  # a parameter a shard
ike_ckpt.model_folder.write_weights = write

def save(step, during=lambda number: None):
    def weights():
        for number in range(6):
            during(number)
            yield f"w{number}", torch.full((1000,), float(step))
    model = SavedModel(weights=weights, config=None, generation_config=None, tokenizer=None)
    SafetensorsStore(keep_last=1).save(
        run, model=model, state=None, progress=Progress(step=step), final=False, facts={}
    )

save(2)
if kind == "kill":
    save(4, lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == 4 else None)
if kind == "full":
    limit = lambda number: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)) if number == 3 else None
    save(4, limit)
if kind == "again":
    save(6)
"""


def child(run: Path, kind: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SAVE, str(run), kind]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def step_2_is_whole(run: Path) -> bool:
    read = read_weights(run / "step-000002" / "model")
    return len(read) == 6 and all(tensor.eq(2.0).all() for tensor in read.values())


def test_a_kill_in_the_middle_leaves_the_step_before_and_nothing_that_looks_complete(tmp_path) -> None:
    assert child(tmp_path, "kill").returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000004.partial"]
    assert list((tmp_path / "step-000004.partial").rglob("*.safetensors"))  # it was in the middle
    assert step_2_is_whole(tmp_path)

    assert child(tmp_path, "again").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["step-000006"]


def test_a_disk_that_is_full_in_the_middle_leaves_the_step_before_and_says_which_failed(tmp_path) -> None:
    failed = child(tmp_path, "full")
    assert failed.returncode == 1
    assert "CheckpointError" in failed.stderr
    assert "step-000004 was not saved" in failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]
    assert step_2_is_whole(tmp_path)
