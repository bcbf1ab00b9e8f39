"""What stands on a terminal, and what in a file."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ike_launch.screen import PlainScreen, TerminalScreen, new_screen

SCRIPT = """
import json, os, sys, time
for step in range(3):
    print(f"\\rloading {step}/3", end="", file=sys.stderr)
    time.sleep(0.3)
print(file=sys.stderr)
with open(os.environ["IKE_PROGRESS_FILE"], "a") as file:
    for step in (1, 2):
        print(f"line of step {step}")
        file.write(json.dumps({"step": step, "steps": 2, "loss": 1.5}) + "\\n")
        file.flush()
        time.sleep(0.3)
"""


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = new_screen("demo")
    assert isinstance(screen, PlainScreen)
    screen.progress({"step": 1, "steps": 2})
    screen.unfinished("half a li", is_error=False)
    screen.line("out [bold]", is_error=False)
    screen.line("err", is_error=True)
    screen.close()
    assert capsys.readouterr() == ("out [bold]\n", "err\n")


def test_a_line_takes_the_place_of_what_was_unfinished(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TerminalScreen("demo")
    screen.unfinished("50%", is_error=False)
    screen.unfinished("50%", is_error=False)  # drawn once
    screen.line("done", is_error=False)
    screen.close()
    assert capsys.readouterr().out == "50%\r\x1b[2Kdone\n"


@pytest.mark.usefixtures("needs_torch")
def test_a_terminal_gets_a_bar_under_the_lines(tmp_path: Path) -> None:
    """A real one: the script's own bar while there is no other, then the launcher's."""
    (tmp_path / "script.py").write_text(SCRIPT)
    seen = run_on_a_terminal(["run", "--", sys.executable, "script.py"], tmp_path)
    assert "loading 1/3" in seen
    assert re.search(r"line of step 1\s", seen)
    assert "2/2" in seen
    assert "loss 1.5" in seen
    assert seen.rindex("line of step 2") < seen.rindex("2/2")


def run_on_a_terminal(arguments: list[str], folder: Path) -> str:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ike_launch.cli", *arguments],
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
        stdin=end,
        stdout=end,
        stderr=end,
    )
    os.close(end)
    seen = b""
    try:
        while chunk := os.read(terminal, 65536):
            seen += chunk
    except OSError:  # EIO: the last that had it open has ended
        pass
    finally:
        os.close(terminal)
        process.kill()
        assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
