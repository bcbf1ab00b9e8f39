"""The fixture `ranks`: forks that are as processes of their own would be."""

import signal
from pathlib import Path

import pytest
from ranks import Ranks

SHOWS = """
import os, random, sys
import numpy, torch
assert __name__ == "__main__"
torch.distributed.init_process_group("gloo")
ranks = torch.ones(1)
torch.distributed.all_reduce(ranks)
print(os.environ["RANK"], os.getcwd(), sys.argv[1:], int(ranks), os.environ.get("OF_THIS_JOB"))
print(hash("word"), random.random(), numpy.random.random(), file=sys.stderr)
torch.distributed.destroy_process_group()
sys.exit(int(os.environ["RANK"]))
"""
WAITS = """
import os, sys, time
time.sleep(600) if os.environ["RANK"] in sys.argv[1:] else sys.exit("as it was told")
"""


def write(script: str, folder: Path) -> Path:
    (folder / "script.py").write_text(script)
    return folder / "script.py"


def test_ranks_have_their_own_environment_output_and_draws(ranks: Ranks, tmp_path: Path) -> None:
    done = ranks(2, write(SHOWS, tmp_path), "a", "b", cwd=tmp_path, deadline_seconds=60, OF_THIS_JOB="yes")
    assert done.codes == [0, 1], str(done)
    assert done.stdout == [f"{rank} {tmp_path} ['a', 'b'] 2 yes\n" for rank in (0, 1)]
    for one, other in zip(*(said.split()[-3:] for said in done.stderr), strict=True):
        assert one != other
    (said,) = ranks(1, write(SHOWS, tmp_path), cwd=tmp_path, deadline_seconds=60).check().stdout
    assert said == f"0 {tmp_path} [] 1 None\n"


def test_a_rank_that_fails_ends_the_others(ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranks.FAILURE_GRACE_SECONDS", 0.1)
    done = ranks(3, write(WAITS, tmp_path), "0", "2", deadline_seconds=250)
    assert done.codes == [-signal.SIGKILL, 1, -signal.SIGKILL]
    with pytest.raises(AssertionError, match="rank 1 ended with 1\n\nas it was told"):
        done.check()


def test_the_deadline_ends_all(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(2, write(WAITS, tmp_path), "0", "1", deadline_seconds=0.2).codes == [-signal.SIGKILL] * 2
