"""The store: built by any number of processes, stopped at any moment, it is the same bytes; and it is built once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LAB = '''
import os, time
from pathlib import Path
import attrs
from ike_core import DataError, Example, Skip
from more import doubled

@attrs.frozen
class Mine:
    """A user's own class, in its own file."""
    seconds: float = 0.0
    wide: bool = False
    words: Path | None = None
    fails_at: int = -1
    dies_at: int = -1

    def process(self, record):
        n = record["n"]
        time.sleep(self.seconds)
        with open(f"{os.environ['TRACES']}/{os.getpid()}", "a") as trace:
            print(n, file=trace)
        if n == self.fails_at:
            raise DataError(f"{n} is not to my taste")
        if n == self.dies_at:
            os.kill(os.getpid(), 9)
        if n % 7 == 0:
            yield Skip("a multiple of seven")
            return
        big = 70_000 if self.wide and n > 300 else 0
        yield Example.of([n % 1000, *doubled(n), big], [0, *[1.0] * (n % 5), 1.0], fields={"n": n})
'''
MORE = "def doubled(n):\n    return [2 * n % 1000] * (n % 5)\n"
CHILD = """
import json, os, sys
from pathlib import Path
folder, said = Path(sys.argv[1]), json.loads(sys.argv[2])
sys.path.append(str(folder / "lab"))
import attrs
from ike_core import DataError
from ike_data import building, read_dataset
from lab import Mine

@attrs.frozen
class World:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    replicas: int = 1
    device: str = "cpu"
    is_first: bool = True

building.RECORD_SECONDS = said["record_seconds"]

def say(line):
    print("says:", line, flush=True)

options = dict(limit=0, max_tokens=0, too_long="skip", budget=1.0, holdout=None, folder=folder / said["run"])
options |= dict(world=World(), cache=folder / "cache", workers=said["workers"], say=say)
if said["words"]:
    said["processor"]["words"] = folder / said["words"]
try:
    parts = read_dataset("train", [str(folder / "rows.jsonl")], Mine(**said["processor"]), **options)
    print(parts.summary)
except DataError as error:
    print("refused:", error)
"""
ROWS = 2000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with rows and the user's own processor."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "traces").mkdir()
    (tmp_path / "lab/lab.py").write_text(LAB)
    (tmp_path / "lab/more.py").write_text(MORE)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(ROWS)))
    return tmp_path


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts a process that reads the dataset."""
    children = []

    def start(
        *, workers: int = 1, run: str = "run", words: str = "", record_seconds: float = 5.0, **processor: Any
    ) -> "subprocess.Popen[str]":
        said = {"workers": workers, "run": run, "words": words, "record_seconds": record_seconds}
        command = [sys.executable, "-c", CHILD, str(home), json.dumps({**said, "processor": processor})]
        environment = {**os.environ, "TRACES": str(home / "traces")}
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, process_group=0
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()


@pytest.fixture
def read(start) -> Callable[..., str]:
    """What the process says."""

    def read(**options: Any) -> str:
        output, _ = start(**options).communicate(timeout=120)
        return output.strip()

    return read


def stores(home: Path) -> list[Path]:
    return sorted(path.parent for path in (home / "cache").glob("*/store.json"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def wait_for(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to pass")


def expected_summary() -> str:
    """Counted from what `Mine` says: rows n with n % 7 != 0 have 2 + n % 5 tokens, all but the first learned."""
    used = [n for n in range(ROWS) if n % 7]
    tokens, supervised = sum(2 + n % 5 for n in used), sum(1 + n % 5 for n in used)
    skipped = ROWS - len(used)
    return (
        f"train data: 2,000 rows, {len(used):,} examples, {tokens:,} tokens, {supervised:,} supervised; "
        f"{skipped} rows not used ({skipped} a multiple of seven)"
    )


def test_workers_write_the_bytes_that_one_process_writes(home, read) -> None:
    assert read(workers=1) == expected_summary()
    (alone,) = stores(home)
    first = content(alone)
    for path in alone.iterdir():
        path.unlink()
    alone.rmdir()
    assert read(workers=2) == expected_summary()
    assert content(alone) == first
    assert [json.loads(line)["source"] for line in (home / "run/ledger.jsonl").open()][:2] == [
        "rows.jsonl:1",
        "rows.jsonl:8",
    ]


def test_the_second_run_maps_what_the_first_has_made(home, read) -> None:
    read()
    (store,) = stores(home)
    made = {path: path.stat().st_mtime_ns for path in store.iterdir()}
    assert read(run="another") == expected_summary()
    assert {path: path.stat().st_mtime_ns for path in store.iterdir()} == made
    assert (home / "another/ledger.jsonl").read_bytes() == (home / "run/ledger.jsonl").read_bytes()


def test_ids_beyond_two_bytes_widen_the_column(home, read) -> None:
    assert read(wide=True) == expected_summary()
    (store,) = stores(home)
    assert not (store / "tokens.u16").exists()
    assert (store / "tokens.i32").stat().st_size == 4 * sum(2 + n % 5 for n in range(ROWS) if n % 7)


@pytest.mark.parametrize(
    "change",
    [
        lambda home: (home / "lab/lab.py").write_text(LAB + "\n# another line\n"),
        lambda home: (home / "lab/more.py").write_text(MORE.replace("2 *", "3 *")),
        lambda home: (home / "words.txt").write_text("others"),
        lambda home: (home / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n'),
    ],
    ids=["its code", "a module that it imports", "a file that a Path field names", "the rows"],
)
def test_what_changes_the_examples_makes_another_store(home, read, change) -> None:
    (home / "words.txt").write_text("some")
    read(words="words.txt")
    read(words="words.txt")
    assert len(stores(home)) == 1
    change(home)
    read(words="words.txt")
    assert len(stores(home)) == 2


def test_what_only_moves_is_the_same_store(home, read) -> None:
    read()
    (home / "lab").rename(home / "moved")
    (home / "lab").symlink_to(home / "moved")
    os.utime(home / "rows.jsonl")
    read()
    assert len(stores(home)) == 1


def processed_by(home: Path) -> dict[int, list[int]]:
    """Process -> the rows that it was given."""
    return {int(path.name): [int(line) for line in path.open()] for path in (home / "traces").iterdir()}


def is_alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_kill_costs_only_what_came_after_the_last_record(home, start, read, workers) -> None:
    read(seconds=0.001)
    (store,) = stores(home)
    whole = content(store)
    remove(store)
    partial = store.with_name(f"{store.name}.partial")
    for rows in (256, 1024):  # each time it comes a little further
        child = start(workers=workers, seconds=0.001, record_seconds=0.0)
        wait_for(lambda rows=rows: recorded(partial) >= rows)
        child.kill()
        child.wait()
        assert stores(home) == []
    wait_for(lambda: not any(map(is_alive, processed_by(home))))
    remove(home / "traces")
    (home / "traces").mkdir()
    done = recorded(partial)
    assert read(seconds=0.001) == expected_summary()
    assert content(store) == whole
    assert not partial.exists()
    (rows,) = processed_by(home).values()
    assert rows[: ROWS - done] == list(range(done, ROWS))  # behind these are the rows of the sample


def recorded(partial: Path) -> int:
    try:
        return json.loads((partial / "progress.json").read_bytes())["tally"]["rows"]
    except OSError:
        return 0


def test_no_worker_outlives_its_parent(home, start) -> None:
    child = start(workers=2, seconds=0.005)
    wait_for(lambda: len(processed_by(home)) == 3)
    workers = set(processed_by(home)) - {child.pid}
    child.kill()
    wait_for(lambda: not any(map(is_alive, workers)))


def test_ctrl_c_ends_all_processes(home, start) -> None:
    child = start(workers=2, seconds=0.005)
    wait_for(lambda: len(processed_by(home)) == 3)
    os.killpg(child.pid, signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    assert output.rstrip().endswith("KeyboardInterrupt")
    assert output.count("Traceback") == 1
    assert not any(map(is_alive, processed_by(home)))


def test_an_error_of_a_worker_is_the_error_of_the_run(home, read) -> None:
    assert read(workers=2, seconds=0.001, fails_at=1990) == "refused: 1990 is not to my taste"
    assert len(processed_by(home)) == 3


def test_a_worker_that_is_killed_ends_the_run_with_a_clear_error(home, read) -> None:
    said = read(workers=2, seconds=0.001, dies_at=1990)
    assert said.startswith("refused: a process that prepares rows was killed from outside; where memory is short, data")
    assert not any(map(is_alive, processed_by(home)))


def test_two_jobs_that_want_one_store_make_it_once(home, start) -> None:
    jobs = [start(seconds=0.001, run=f"run{number}", record_seconds=0.0) for number in range(2)]
    said = sorted(job.communicate(timeout=120)[0].strip().splitlines() for job in jobs)
    (store,) = stores(home)
    waiting = f"says: train data: another process makes its store; waiting for it ({store})"
    assert said == [[waiting, expected_summary()], [expected_summary()]]
    assert sorted(len(rows) > ROWS for rows in processed_by(home).values()) == [False, True]


def test_a_cache_that_is_no_folder_is_an_error_that_names_it(home, read) -> None:
    (home / "cache").write_text("")
    assert read().startswith(f"refused: train data: its store can't be written: {home / 'cache'}")
