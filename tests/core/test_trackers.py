"""Trackers can neither stop nor hang a run; the log is JSON; what people watch suits where they watch it."""

import io
import json
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ike_core.console import ConsoleTracker, ProgressBar, describe
from ike_core.errors import ConfigError
from ike_core.interfaces import RunFacts
from ike_core.json_lines import JsonLinesTracker
from ike_core.trackers import Trackers

FIRST, SECOND = SimpleNamespace(is_first=True), SimpleNamespace(is_first=False)


def facts(folder: Path, *, steps: int = 20) -> RunFacts:
    return RunFacts(file_id="run-1", folder=folder, name="run", group="", steps=steps, ranks=1, config={})


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class Fake:
    """Remembers its calls."""

    def __init__(self) -> None:
        self.heard: list = []

    def start(self, run) -> None:
        self.heard.append("start")

    def log(self, step, values) -> None:
        self.heard.append((step, values))

    def finish(self) -> None:
        self.heard.append("finish")


class FakeScreen(Fake):
    def say(self, line) -> None:
        self.heard.append(line)

    def advance(self, step) -> None:
        self.heard.append(step)


def unreachable() -> Fake:
    raise ConnectionError("no route to host")


class ThirdLogRaises(Fake):
    def log(self, step, values) -> None:
        super().log(step, values)
        if len(self.heard) == 4:  # start, and the third log
            raise RuntimeError("quota used up")


class SleepsAnHour(Fake):
    def start(self, run) -> None:
        time.sleep(3600)


def five_steps(parts, folder, *, patience_seconds=5.0) -> None:
    trackers = Trackers({"lines": JsonLinesTracker, **parts}, FIRST, patience_seconds=patience_seconds)
    trackers.start(facts(folder))
    for step in range(1, 6):
        trackers.log(step, {"loss": 1.0 / step})
    trackers.finish()


# -- B19: an outside service is no part of the run --------------------------------------------------------------------


def test_a_tracker_that_cannot_be_built_is_off_after_one_warning(tmp_path, capfd) -> None:
    five_steps({"cloud": unreachable}, tmp_path)
    assert [row["step"] for row in lines(tmp_path)] == [1, 2, 3, 4, 5]
    warning = "warning: trackers.cloud is switched off and the run goes on: building it raised ConnectionError: "
    assert capfd.readouterr().err == warning + "no route to host\n"


def test_a_tracker_that_raises_is_off_from_there_on(tmp_path, capfd) -> None:
    broken = ThirdLogRaises()
    five_steps({"cloud": lambda: broken}, tmp_path)
    assert broken.heard == ["start", (1, {"loss": 1.0}), (2, {"loss": 0.5}), (3, {"loss": 1 / 3})]
    assert len(lines(tmp_path)) == 5
    assert capfd.readouterr().err.count("warning: trackers.cloud") == 1


def test_a_tracker_that_starts_too_slowly_is_given_up(tmp_path, capfd) -> None:
    slow = SleepsAnHour()
    began = time.monotonic()
    five_steps({"cloud": lambda: slow}, tmp_path, patience_seconds=0.3)
    assert time.monotonic() - began < 3.0
    assert slow.heard == []
    assert len(lines(tmp_path)) == 5
    assert (
        "trackers.cloud is switched off and the run goes on: start() took longer than 0.3 s" in capfd.readouterr().err
    )


def test_a_tracker_that_was_given_up_does_not_keep_the_process_alive(tmp_path) -> None:
    script = (
        "import time; from types import SimpleNamespace as S; from ike_core.trackers import Trackers\n"
        "trackers = Trackers({'cloud': lambda: time.sleep(3600)}, S(is_first=True), patience_seconds=0.1)\n"
        "trackers.finish(); print('over')"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert (child.returncode, child.stdout) == (0, "over\n")


def test_a_service_that_exits_the_interpreter_only_loses_itself(tmp_path, capfd) -> None:
    five_steps({"cloud": lambda: sys.exit("no key")}, tmp_path)
    assert len(lines(tmp_path)) == 5
    assert "building it raised SystemExit: no key" in capfd.readouterr().err


def test_a_time_out_of_the_tracker_s_own_is_told_from_ours(tmp_path, capfd) -> None:
    def times_out() -> Fake:
        raise TimeoutError("handshake")

    five_steps({"cloud": times_out}, tmp_path)
    assert "building it raised TimeoutError: handshake" in capfd.readouterr().err


def test_a_wrong_setting_is_no_outage_but_an_error(tmp_path) -> None:
    def misspelt() -> Fake:
        raise ConfigError("trackers.cloud.projcet: unknown")

    with pytest.raises(ConfigError, match="projcet"):
        Trackers({"cloud": misspelt}, FIRST)


# -- who speaks -------------------------------------------------------------------------------------------------------


def test_other_ranks_build_nothing_and_say_nothing(capfd) -> None:
    built: list[str] = []
    trackers = Trackers({"cloud": lambda: built.append("cloud")}, SECOND)
    trackers.start(facts(Path("nowhere")))
    trackers.log(1, {"loss": 1.0})
    trackers.log(2, {})
    trackers.say("epoch 1")
    trackers.finish()
    assert built == []
    assert capfd.readouterr() == ("", "")


def test_lines_go_to_every_screen_and_to_nothing_else(capfd) -> None:
    screen, other = FakeScreen(), Fake()
    Trackers({"screen": lambda: screen, "other": lambda: other}, FIRST).say("12 rows skipped")
    assert (screen.heard, other.heard) == (["12 rows skipped"], [])
    assert capfd.readouterr() == ("", "")


def test_a_line_is_said_on_stderr_where_no_screen_is_left(capfd) -> None:
    class Torn(FakeScreen):
        def say(self, line) -> None:
            raise BrokenPipeError("terminal gone")

    Trackers({"screen": Torn}, FIRST).say("12 rows skipped")
    assert capfd.readouterr().err.splitlines() == [
        "warning: trackers.screen is switched off and the run goes on: say() raised BrokenPipeError: terminal gone",
        "12 rows skipped",
    ]


def test_a_step_without_values_moves_only_the_screens() -> None:
    screen, other = FakeScreen(), Fake()
    trackers = Trackers({"screen": lambda: screen, "other": lambda: other}, FIRST)
    trackers.log(1, {})
    trackers.log(2, {})  # within 0.2 s of the last: not worth the while
    trackers.log(3, {"loss": 1.0})
    assert screen.heard == [1, (3, {"loss": 1.0})]
    assert other.heard == [(3, {"loss": 1.0})]


@pytest.mark.parametrize("world", [FIRST, SECOND])
def test_a_step_is_logged_once(world) -> None:
    trackers = Trackers({}, world)
    trackers.log(3, {"loss": 1.0})
    with pytest.raises(ValueError, match="step 3 comes after step 3"):
        trackers.log(3, {"valid/a/loss": 1.0})


def test_all_calls_of_a_tracker_come_from_one_thread_which_ends_with_the_run(tmp_path) -> None:
    class Threaded(Fake):
        def log(self, step, values) -> None:
            self.heard.append(threading.current_thread())

    part = Threaded()
    trackers = Trackers({"cloud": lambda: part}, FIRST)
    for step in range(3):
        trackers.log(step, {"loss": 1.0})
    (thread,) = set(part.heard)
    trackers.finish()
    thread.join(5.0)
    assert not thread.is_alive()


def test_finishing_twice_finishes_once() -> None:
    part = Fake()
    trackers = Trackers({"cloud": lambda: part}, FIRST)
    trackers.finish()
    trackers.finish()
    assert part.heard == ["finish"]


# -- log.jsonl --------------------------------------------------------------------------------------------------------


def test_each_line_is_an_object_that_starts_with_its_step(tmp_path) -> None:
    tracker = JsonLinesTracker()
    tracker.start(facts(tmp_path))
    tracker.log(0, {"valid/holdout/loss": 2.5})
    tracker.log(10, {"loss": 1.25, "tokens": 4096, "learning_rate": 1e-05})
    tracker.finish()
    assert (tmp_path / "log.jsonl").read_text() == (
        '{"step": 0, "valid/holdout/loss": 2.5}\n{"step": 10, "loss": 1.25, "tokens": 4096, "learning_rate": 1e-05}\n'
    )


def test_what_is_not_finite_is_null_and_named_so_that_every_line_stays_json(tmp_path) -> None:
    tracker = JsonLinesTracker()
    tracker.start(facts(tmp_path))
    tracker.log(7, {"loss": float("nan"), "grad_norm": float("inf"), "margin": -float("inf"), "tokens": 3})
    tracker.finish()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    row = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=refuse)
    named = {"loss": "nan", "grad_norm": "inf", "margin": "-inf"}
    assert row == {"step": 7, "loss": None, "grad_norm": None, "margin": None, "tokens": 3, "nonfinite": named}


def test_nothing_that_is_not_json_is_written(tmp_path) -> None:
    tracker = JsonLinesTracker()
    tracker.start(facts(tmp_path))
    with pytest.raises(ValueError, match="not JSON compliant"):
        tracker.log(1, {"quantiles": [0.5, float("nan")]})
    tracker.finish()
    assert lines(tmp_path) == []


def test_a_run_that_goes_on_keeps_the_lines_before(tmp_path) -> None:
    for step in (1, 2):
        tracker = JsonLinesTracker()
        tracker.start(facts(tmp_path))
        tracker.log(step, {"loss": 1.0})
        tracker.finish()
    assert [row["step"] for row in lines(tmp_path)] == [1, 2]


def test_a_kill_loses_no_line_that_was_logged(tmp_path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from types import SimpleNamespace as S\n"
        "from ike_core.json_lines import JsonLinesTracker; from ike_core.trackers import Trackers\n"
        "trackers = Trackers({'lines': JsonLinesTracker}, S(is_first=True))\n"
        "trackers.start(S(folder=Path(sys.argv[1])))\n"
        "for step in range(1, 101): trackers.log(step, {'loss': 0.1 * step, 'text': 'x' * 10_000})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=20)
    assert child.returncode == -9
    assert [row["step"] for row in lines(tmp_path)] == list(range(1, 101))


# -- the console: B29 -------------------------------------------------------------------------------------------------

TWENTY_STEPS = """
import sys; from pathlib import Path; from types import SimpleNamespace as S
from ike_core.console import ConsoleTracker; from ike_core.trackers import Trackers
trackers = Trackers({"console": ConsoleTracker}, S(is_first=True))
trackers.say("64 rows, 2 skipped [see ledger.jsonl]")
trackers.start(S(name="run", steps=20))
for step in range(1, 21):
    trackers.log(step, {"loss": 1 / step, "tokens_per_second": 1234.5} if step % 5 == 0 else {})
trackers.finish()
"""


def environment(**extra: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("TERM", "IKE_PROGRESS_FILE")}
    return {**inherited, "COLUMNS": "120", **extra}


def on_a_terminal(variables: dict[str, str]) -> str:
    """What the twenty steps write to a pseudo-terminal."""
    screen, inside = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", TWENTY_STEPS], stdout=inside, stderr=inside, env=variables)
    os.close(inside)
    seen = b""
    try:
        while part := os.read(screen, 65536):
            seen += part
    except OSError:  # EIO: the child has closed its side
        pass
    os.close(screen)
    assert child.wait(timeout=20) == 0
    return seen.decode()


@pytest.mark.parametrize("variables", [{}, {"TERM": "xterm"}])
def test_redirected_output_is_one_plain_line_an_interval(tmp_path, variables) -> None:
    with open(tmp_path / "out", "wb") as out:
        command = [sys.executable, "-c", TWENTY_STEPS]
        subprocess.run(command, stdout=out, stderr=out, env=environment(**variables), check=True)
    written = (tmp_path / "out").read_bytes()
    assert b"\r" not in written
    assert b"\x1b" not in written
    assert written.decode().splitlines() == [
        "64 rows, 2 skipped [see ledger.jsonl]",
        "step 5/20  loss 0.2  1,234 tokens/s",
        "step 10/20  loss 0.1  1,234 tokens/s",
        "step 15/20  loss 0.06667  1,234 tokens/s",
        "step 20/20  loss 0.05  1,234 tokens/s",
    ]


def test_a_step_with_an_evaluation_fits_into_a_hundred_columns() -> None:
    values = {"loss": 1.6234, "grad_norm": 12.813, "learning_rate": 0.00027556, "tokens_per_second": 1234.5}
    line = describe(11, 22, {**values, "valid/mine/loss": 1.4109, "tokens": 12345})
    assert line == (
        "step 11/22  loss 1.623  grad_norm 12.8  learning_rate 0.000276  1,234 tokens/s  valid/mine/loss 1.411"
    )


def test_a_terminal_gets_a_bar_below_the_lines() -> None:
    text = on_a_terminal(environment(TERM="xterm"))
    assert "64 rows, 2 skipped [see ledger.jsonl]" in text
    assert "step 5/20  loss 0.2  1,234 tokens/s" in text
    assert "20/20" in text
    assert "loss 0.05  1,234 tokens/s" in text
    assert "━" in text  # the bar itself
    assert text.endswith("\x1b[?25h")  # the cursor is shown again


@pytest.mark.parametrize("variables", [{}, {"TERM": "dumb"}])
def test_a_terminal_that_cannot_redraw_gets_plain_lines(variables) -> None:
    assert "\x1b" not in on_a_terminal(environment(**variables))


def test_under_the_launcher_no_rank_draws_even_on_a_terminal(tmp_path) -> None:
    text = on_a_terminal(environment(TERM="xterm", IKE_PROGRESS_FILE=str(tmp_path / "progress")))
    assert "step 20/20" in text
    assert "━" not in text


def test_under_the_launcher_lines_stay_plain_and_the_bar_s_numbers_go_to_its_file(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.setenv("IKE_PROGRESS_FILE", str(tmp_path / "progress"))
    console = ConsoleTracker()
    console.start(facts(tmp_path, steps=20))
    console.advance(1)
    console.log(3, {"loss": 0.5, "tokens_per_second": 100.0})
    console.finish()
    assert capfd.readouterr().out == "step 3/20  loss 0.5  100 tokens/s\n"
    assert [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()] == [
        {"step": 1, "steps": 20},
        {"step": 3, "steps": 20, "loss": 0.5, "tokens_per_second": 100.0},
    ]


def test_a_line_for_people_has_short_numbers_and_no_bookkeeping() -> None:
    values = {"loss": 2.345678, "learning_rate": 1e-05, "epoch": 0.5, "tokens": 12345, "valid/holdout/loss": 2.0}
    assert describe(20, 100, values) == "step 20/100  loss 2.346  learning_rate 1e-05  valid/holdout/loss 2"


def test_the_bar_keeps_what_an_update_leaves_out_and_takes_lines_as_they_are(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    bar = ProgressBar("run")
    bar.update({"step": 500, "steps": 1000, "loss": 2.0, "valid/a/loss": 3.0})
    bar.update({"step": 501, "steps": 1000})
    bar.print("[rank 1] loading: [bold]not markup[/bold] " + "x" * 300)
    bar.close()
    shown = sys.stdout.getvalue()
    assert "[rank 1] loading: [bold]not markup[/bold] " + "x" * 300 + "\n" in shown
    assert "501/1000 loss 2  valid/a/loss 3" in shown
