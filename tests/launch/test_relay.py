"""From the ranks' files to the screen."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from ike_launch import relay
from ike_launch.job import Job
from ike_launch.relay import Relay, Tail


@attrs.define
class Recorder:
    """A screen that remembers."""

    lines: list[str] = attrs.Factory(list)
    growing: list[str] = attrs.Factory(list)

    def line(self, text: str, *, is_error: bool) -> None:
        self.lines.append(("err " if is_error else "out ") + text)

    def unfinished(self, text: str, *, is_error: bool) -> None:
        self.growing.append(text)

    def progress(self, values: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(command=("true",), ranks=2, launch_id="x", logs=tmp_path, control=tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = 100.0

    def advance(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(relay, "time", SimpleNamespace(monotonic=lambda: now))
    return advance


@pytest.mark.parametrize(
    ("written", "lines", "rest"),
    [
        (b"one\ntwo\n", ["one", "two"], []),
        (b"one\ntw", ["one"], ["tw"]),
        (b"\r1/3\r2/3\r3/3\nnext\n", ["3/3", "next"], []),
        (b"dos\r\n\r\n", ["dos", ""], []),
        (b"\r1/3\r2/3", [], ["2/3"]),
        ("naïve\n".encode(), ["naïve"], []),
        (b"broken \xff\n", ["broken \ufffd"], []),
    ],
)
def test_a_line_is_what_a_terminal_shows_in_the_end(
    tmp_path: Path, written: bytes, lines: list[str], rest: list[str]
) -> None:
    """B29: no carriage return is left, however the bytes come."""
    for size in (1, 2, 1000):
        path = tmp_path / f"file-{size}"
        path.touch()
        tail, seen = Tail(path), []
        for start in range(0, len(written), size):
            with path.open("ab") as file:
                file.write(written[start : start + size])
            seen += tail.lines()
        assert (seen, tail.rest()) == (lines, rest)


def test_a_bar_drawn_a_million_times_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\r50%" * 1_000_000)
    tail = Tail(path)
    assert tail.lines() == []
    assert len(tail.unfinished) < 10


def test_lines_of_other_ranks_say_whose_they_are(job: Job) -> None:
    screen = Recorder()
    for rank in (0, 1):
        job.stdout(rank).write_text(f"from {rank}\n[bold]as it is[/bold]\n")
        job.stderr(rank).touch()
    Relay(job, screen).pump()
    assert screen.lines == [
        "out from 0",
        "out [bold]as it is[/bold]",
        "out [rank 1] from 1",
        "out [rank 1] [bold]as it is[/bold]",
    ]


def test_stderr_waits_and_holds_what_comes_after_it(job: Job, clock: Callable[[float], None]) -> None:
    screen = Recorder()
    shown = Relay(job, screen)
    job.stderr(0).write_text("a warning\n")
    shown.pump()
    job.stdout(0).write_text("later\n")
    shown.pump()
    assert screen.lines == []
    clock(relay.STDERR_SECONDS)
    shown.pump()
    assert screen.lines == ["err a warning", "out later"]


def test_last_words_of_failing_ranks_are_left_to_the_report(job: Job, clock: Callable[[float], None]) -> None:
    screen = Recorder()
    shown = Relay(job, screen)
    job.stderr(1).write_text("[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: boom\n")
    shown.pump()
    clock(relay.STDERR_SECONDS)  # tearing down takes longer than that
    job.stdout(0).write_text("step 7\n")
    shown.pump()
    unsaid = shown.finish(failed=True)
    assert screen.lines == ["out step 7"]
    assert unsaid == {1: ["[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: boom"]}


def test_how_a_rank_ends_that_was_told_to_is_not_shown(job: Job, clock: Callable[[float], None]) -> None:
    screen = Recorder()
    shown = Relay(job, screen)
    shown.stopping()
    job.stderr(0).write_text("saving what there is\n")
    shown.pump()
    clock(relay.STDERR_SECONDS)
    shown.pump()
    with job.stderr(0).open("a") as file:
        file.write("Traceback (most recent call last):\nKeyboardInterrupt\n")
    shown.pump()
    clock(30.0)
    shown.pump()
    shown.finish(failed=True)
    assert screen.lines == ["err saving what there is"]


def test_nothing_is_left_out_where_nothing_failed(job: Job) -> None:
    screen = Recorder()
    shown = Relay(job, screen)
    job.stdout(0).write_text("no newline")
    job.stderr(1).write_text("Traceback (most recent call last):\n  ...\nValueError: caught")
    assert shown.finish(failed=False) == {}
    assert screen.lines == [
        "out no newline",
        "err [rank 1] Traceback (most recent call last):",
        "err [rank 1]   ...",
        "err [rank 1] ValueError: caught",
    ]


def test_a_bar_of_rank_0_is_handed_on_as_it_grows(job: Job) -> None:
    screen = Recorder()
    shown = Relay(job, screen)
    for drawn in (b"\r1/3", b"\r2/3"):
        with job.stderr(0).open("ab") as file:
            file.write(drawn)
        shown.pump()
    assert screen.growing == ["1/3", "2/3"]
    assert screen.lines == []
