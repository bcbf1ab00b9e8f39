"""One rank of each host builds, the others wait on a file: no process group waits, and an error reaches all."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ike_core import ConfigError, DataError
from ike_data.announcing import Announcer, wait_until_ready

DEADLINE_SECONDS = 60

CHILD = """
import sys, time
from pathlib import Path
import attrs
from ike_core import DataError, Example
from ike_data import read_dataset

rank, size, per_host, seconds, error = (int(word) for word in sys.argv[1:6])
folder, file = Path(sys.argv[6]), sys.argv[7]

@attrs.frozen
class World:
    rank: int = rank
    size: int = size
    local_rank: int = rank % per_host
    local_size: int = per_host
    replicas: int = size
    device: str = "cpu"
    is_first: bool = rank == 0

    def broadcast(self, value):
        note = folder / "broadcast"
        if rank == 0:
            note.with_name("partial").write_text(value)
            note.with_name("partial").rename(note)
        while not note.exists():
            time.sleep(0.01)
        return note.read_text()

@attrs.frozen
class Slow:
    def process(self, record):
        time.sleep(seconds)
        if error:
            raise DataError("nothing to be done")
        yield Example.of(record["n"], [0, 1])

options = dict(limit=0, max_tokens=0, too_long="skip", budget=0.0, holdout=None)
options |= dict(cache=folder / "cache", workers=1, say=lambda line: None)
time.sleep(rank == 0)  # the others come first
began = time.monotonic()
try:
    kept = read_dataset("train", [file], Slow(), **options, folder=folder, world=World()).kept
    print([list(example.trunk.tokens) for example in kept], "torch" in sys.modules)
except DataError as refused:
    print("refused:", refused, f"after {time.monotonic() - began:.0f} s")
"""


@pytest.fixture
def run(tmp_path: Path, write: Callable[..., str]) -> Callable[..., list[str]]:
    """What each rank prints."""

    def run(ranks: int, *, per_host: int, seconds: int = 0, error: bool = False) -> list[str]:
        file = write("a.jsonl", [{"n": [1, 2]}, {"n": [3, 4]}])
        words = [str(number) for number in (ranks, per_host, seconds, int(error))]
        children = [
            subprocess.Popen(
                [sys.executable, "-c", CHILD, str(rank), *words, str(tmp_path), file],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            said = [child.communicate(timeout=DEADLINE_SECONDS) for child in children]
        finally:
            for child in children:
                child.kill()
        assert [errors for _, errors in said] == [""] * ranks
        return [output.strip() for output, _ in said]

    return run


def test_ranks_of_a_host_map_what_one_of_them_built(run, tmp_path) -> None:
    assert run(3, per_host=3, seconds=1) == ["[[1, 2], [3, 4]] False"] * 3
    assert [path.name for path in (tmp_path / "data/train").iterdir() if path.is_dir()] == ["host-00000"]


def test_every_host_builds_its_own_even_in_a_shared_folder(run, tmp_path) -> None:
    assert run(4, per_host=2) == ["[[1, 2], [3, 4]] False"] * 4
    folders = sorted(path.name for path in (tmp_path / "data/train").iterdir() if path.is_dir())
    assert folders == ["host-00000", "host-00002"]


def test_an_error_is_the_same_on_every_rank_at_once(run) -> None:
    said = run(2, per_host=2, error=True)
    assert [line.partition(" after ")[0] for line in said] == ["refused: nothing to be done"] * 2
    assert all(int(line.split()[-2]) < 10 for line in said)


def test_what_an_earlier_run_left_in_the_folder_is_not_taken(run, tmp_path) -> None:
    for left in ("ready", "failed"):
        path = tmp_path / f"data/train/host-00000.{left}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"state": left, "error": "DataError", "message": "of yesterday"}))
    assert run(2, per_host=2, seconds=1) == ["[[1, 2], [3, 4]] False"] * 2


def test_who_waits_raises_what_the_builder_raised(tmp_path) -> None:
    path = tmp_path / "announcement.json"
    for error, kind, message in (
        (ConfigError("no such column"), ConfigError, "no such column"),
        (DataError("bad rows"), DataError, "bad rows"),
        (ZeroDivisionError("by zero"), DataError, "the rank that prepares the data failed: ZeroDivisionError: by zero"),
    ):
        with pytest.raises(type(error)), Announcer(path).announcing():
            raise error
        with pytest.raises(kind) as raised:
            wait_until_ready(path)
        assert str(raised.value) == message


def test_who_waits_waits_as_long_as_there_is_work(tmp_path) -> None:
    path = tmp_path / "announcement.json"

    def work() -> None:
        with Announcer(path).announcing():
            for rows in range(10):
                Announcer(path).progress(rows)
                time.sleep(0.1)

    worker = threading.Thread(target=work)
    worker.start()
    wait_until_ready(path, silence_seconds=0.6)
    worker.join()


def test_who_waits_gives_up_on_silence(tmp_path) -> None:
    path = tmp_path / "announcement.json"
    announcer = Announcer(path)
    announcer.progress(12_000)
    began = time.monotonic()
    with pytest.raises(DataError, match=r"has said nothing for 0 s, after 12000 rows"):
        wait_until_ready(path, silence_seconds=0.3)
    assert 0.25 < time.monotonic() - began < 5
