"""How many ranks there are, found without torch."""

import subprocess
from pathlib import Path

import pytest

from ike_core.errors import ConfigError, LaunchError
from ike_launch import devices
from ike_launch.devices import Gpus

LISTING = """\
GPU 0: NVIDIA H200 (UUID: GPU-1)
  MIG 3g.71gb     Device  0: (UUID: MIG-1)
GPU 1: NVIDIA H200 (UUID: GPU-2)
"""


@pytest.mark.parametrize(
    ("visible", "count"),
    [("3,5", 2), ("", 0), ("-1", 0), ("0", 1), ("GPU-8932f937,GPU-ab12", 2), ("0,-1,1", 1), (" 1 , 2 ", 2)],
)
def test_the_users_variable_says_it_as_cuda_reads_it(visible: str, count: int) -> None:
    assert Gpus.find({"CUDA_VISIBLE_DEVICES": visible}).count == count


def test_else_the_driver_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    ran = subprocess.CompletedProcess(["nvidia-smi", "-L"], 0, stdout=LISTING, stderr="")
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: ran)
    assert Gpus.find({}).count == 2


def test_or_its_folder_where_there_is_no_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "0000:17:00.0").mkdir()
    monkeypatch.setattr(devices.shutil, "which", lambda _: None)
    monkeypatch.setattr(devices, "_PROC_GPUS", tmp_path)
    assert Gpus.find({}).count == 1
    monkeypatch.setattr(devices, "_PROC_GPUS", tmp_path / "absent")
    assert Gpus.find({}).count == 0


def test_auto_is_one_rank_a_gpu_and_one_without() -> None:
    assert Gpus(4, "the NVIDIA driver").ranks("auto") == 4
    assert Gpus(0, "the NVIDIA driver").ranks("auto") == 1


def test_more_ranks_than_gpus_are_refused_with_both_numbers() -> None:
    """B111: more ranks than listed devices, unless on the CPU."""
    with pytest.raises(LaunchError, match=r"launch\.ranks = 3, but CUDA_VISIBLE_DEVICES=3,5 lists 2 GPUs"):
        Gpus.find({"CUDA_VISIBLE_DEVICES": "3,5"}).ranks(3)
    assert Gpus.find({"CUDA_VISIBLE_DEVICES": ""}).ranks(3) == 3
    with pytest.raises(ConfigError, match=r"launch\.ranks = 0 must be at least 1"):
        Gpus(0, "the NVIDIA driver").ranks(0)
    assert Gpus.find({"CUDA_VISIBLE_DEVICES": "3,5", "DS_ACCELERATOR": "cpu"}).ranks(3) == 3
