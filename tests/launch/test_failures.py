"""Which of several failing ranks is the cause."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from ike_launch.failures import Failure, first_failure
from ike_launch.job import Job

CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:56028"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(command=("true",), ranks=4, launch_id="x", logs=tmp_path, control=tmp_path)
    for rank in range(job.ranks):
        job.stdout(rank).touch()
        job.stderr(rank).touch()
    return job


def fails(job: Job, rank: int, said: str, *, at: float) -> None:
    """A rank of a user's script: what it wrote on stderr, and when."""
    job.stderr(rank).write_text(f"Traceback (most recent call last):\n{said}\n")
    os.utime(job.stderr(rank), (at, at))


def cause(job: Job, codes: Mapping[int, int], by_themselves: list[int]) -> Failure:
    unsaid = {rank: job.stderr(rank).read_text().splitlines() for rank in codes}
    found = first_failure(job, codes, by_themselves, unsaid)
    assert found is not None
    return found


def test_the_earliest_of_those_the_agent_saw_at_once(job: Job) -> None:
    fails(job, 0, "ValueError: later", at=1000.2)
    fails(job, 2, "ValueError: first", at=1000.1)
    assert cause(job, {0: 1, 1: 0, 2: 1}, [0, 2]).rank == 2


@pytest.mark.parametrize("noise", [CLOSED, "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"])
def test_who_only_notices_anothers_end_is_not_the_cause(job: Job, noise: str) -> None:
    """Even where it was quicker to end: the cause may take long to tear down."""
    fails(job, 0, noise, at=1000.0)
    fails(job, 1, "ValueError: the cause", at=1000.4)
    assert cause(job, {0: 1, 1: 1}, [0]).lines[-1] == "ValueError: the cause"
    assert cause(job, {0: 1, 1: -15}, [0]).exit_code == 1  # stopped while it was failing


def test_a_silent_exit_is_the_cause_of_the_others_noise(job: Job) -> None:
    fails(job, 0, CLOSED, at=1000.0)
    found = cause(job, {0: 1, 1: 3}, [0, 1])
    assert (found.rank, found.exit_code) == (1, 3)


def test_a_rank_that_leaves_with_0_is_the_cause_where_the_others_only_notice(job: Job) -> None:
    fails(job, 0, CLOSED, at=1000.0)
    fails(job, 2, CLOSED, at=1000.1)
    found = cause(job, {0: 1, 1: 0, 2: 1}, [0, 2])
    assert (found.rank, found.exit_code) == (1, 1)
    head, said = found.report(3, job.logs).splitlines()
    assert head.startswith("rank 1 of 3 on ")
    assert " ended early with exit code 0; output of all ranks: " in head
    assert said == f"the run was not done, and rank 0 could not go on without it: {CLOSED}"


def test_a_rank_that_was_done_is_no_cause_of_anothers_own_error(job: Job) -> None:
    fails(job, 0, "ValueError: at the end", at=1000.0)
    assert cause(job, {0: 1, 1: 0}, [0]).rank == 0


def test_where_there_is_only_noise_the_first_to_notice_is_told(job: Job) -> None:
    fails(job, 0, CLOSED, at=1000.3)
    fails(job, 1, CLOSED, at=1000.1)
    assert cause(job, {0: 1, 1: 1}, [0, 1]).rank == 1


def test_a_rank_that_was_stopped_is_no_failure(job: Job) -> None:
    fails(job, 1, "ValueError: boom", at=1000.0)
    assert cause(job, {0: -15, 1: 1, 2: -9}, [1]).rank == 1
    assert first_failure(job, {0: -15, 1: 0}, [], {}) is None


def test_a_worker_says_step_kind_and_time_itself(job: Job) -> None:
    for rank, kind, at in ((0, "TrainingError", 1000.2), (1, "DataError", 1000.1)):
        left = {"rank": rank, "step": 12, "kind": kind, "message": "row 7", "traceback": "Traceback ...", "time": at}
        job.failure(rank).write_text(json.dumps(left))
    found = cause(job, {0: 6, 1: 3}, [0, 1])
    assert (found.rank, found.step, found.exit_code) == (1, 12, 3)
    report = found.report(2, job.logs).splitlines()
    assert "rank 1 of 2" in report[0]
    assert "at step 12" in report[0]
    assert report[1:] == ["DataError: row 7"]  # meant for the user: no traceback of ours


def test_an_unexpected_error_keeps_its_traceback(job: Job) -> None:
    trace = "Traceback (most recent call last):\n  ...\nKeyError: 'x'\n"
    left = {"rank": 0, "step": None, "kind": "KeyError", "message": "'x'", "traceback": trace, "time": 1.0}
    job.failure(0).write_text(json.dumps(left))
    report = cause(job, {0: 1}, [0]).report(1, job.logs)
    assert report.splitlines()[1:] == trace.splitlines()
    assert "at step" not in report


def test_a_half_written_failure_file_is_as_none(job: Job) -> None:
    job.failure(0).write_text('{"rank": 0, "st')
    fails(job, 0, "MemoryError", at=1000.0)
    assert cause(job, {0: 1}, [0]).lines[-1] == "MemoryError"


def test_a_signal_is_named(job: Job) -> None:
    job.stdout(0).write_text("step 3\n")
    found = cause(job, {0: -11}, [0])
    assert (found.exit_code, found.signal) == (128 + 11, "SIGSEGV")
    (report,) = found.report(1, job.logs).splitlines()  # what it had said before is no error, and was shown
    assert "was killed by SIGSEGV" in report


def test_of_a_killed_rank_only_fresh_words_can_be_about_its_end(job: Job) -> None:
    job.stderr(0).write_text("warning: long ago\nFatal Python error: Segmentation fault\n")
    killed = first_failure(job, {0: -11}, [0], {0: ["Fatal Python error: Segmentation fault"]})
    assert killed is not None
    assert killed.report(1, job.logs).splitlines()[1:] == ["Fatal Python error: Segmentation fault"]
    silent = first_failure(job, {0: -9}, [0], {})
    assert silent is not None
    assert len(silent.report(1, job.logs).splitlines()) == 1
