"""What all ranks of a job share."""

from pathlib import Path

import pytest

from ike_launch import environment
from ike_launch.environment import rank_environment
from ike_launch.job import Job


def job(ranks: int) -> Job:
    return Job(command=("true",), ranks=ranks, launch_id="x", logs=Path("logs"), control=Path("control"))


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(8, 2, "4"), (8, 3, "2"), (2, 4, "1")])
def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch, cores: int, ranks: int, threads: str) -> None:
    monkeypatch.setattr(environment, "_cores", lambda: cores)
    assert rank_environment(job(ranks), base={})["OMP_NUM_THREADS"] == threads


def test_what_the_user_has_set_stays() -> None:
    given = {"OMP_NUM_THREADS": "5", "PYTHONUNBUFFERED": "", "CUDA_VISIBLE_DEVICES": "3,5"}
    assert given.items() <= rank_environment(job(2), base=given).items()


def test_devices_are_never_chosen_for_the_user() -> None:
    assert not {"CUDA_VISIBLE_DEVICES", "LOCAL_SIZE"} & rank_environment(job(2), base={}).keys()
