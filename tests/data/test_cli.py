"""The `ike-data` command: instant where it reads nothing, without torch, and the words that it takes are these."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ike_data import cli

WITHOUT_TORCH = """
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "deepspeed", "transformers", "rich", "pyarrow", "attr"}:
            raise ImportError(f"{name} is forbidden here")

sys.meta_path.insert(0, Forbid())
from ike_data.cli import command
sys.exit(command(sys.argv[1:]))
"""

OPTIONS = {
    "inspect": {"--data", "--html", "--row", "--rows", "--start"},
    "check": {"--data", "--json"},
    "prepare": {"--data"},
}
"""Users' scripts rely on these: one that goes is a line of the changelog."""


def help_of(folder: Path, *arguments: str) -> tuple[str, float]:
    """What a child says, and the CPU seconds that it takes."""
    with (folder / "out").open("w+") as out:
        process = subprocess.Popen([sys.executable, "-c", WITHOUT_TORCH, *arguments], stdout=out, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return (folder / "out").read_text(), usage.ru_utime + usage.ru_stime


def test_help_is_instant(tmp_path: Path) -> None:
    assert min(help_of(tmp_path, "--help")[1] for _ in range(3)) < 0.1
    told, _ = help_of(tmp_path, "--help")
    assert set(re.findall(r"ike-data (\w+) ", told)) == set(OPTIONS)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_the_options_of_every_command_are_these(tmp_path: Path, name: str) -> None:
    told, _ = help_of(tmp_path, name, "--help")
    assert told.startswith(f"usage: ike-data {name}")
    assert set(re.findall(r"^  (?:-\w, )?(--\w+)", told, re.MULTILINE)) == OPTIONS[name] | {"--help"}
    for option in OPTIONS[name]:
        assert option in told.partition("\n\n")[0], "the usage names it"


def test_a_misspelt_command_has_a_nearest(capsys) -> None:
    assert cli.command(["chekc"]) == 2
    assert capsys.readouterr().err == "ike-data: no command 'chekc'; did you mean check?\n"


def test_there_is_one_version(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.command(["--version"])
    assert capsys.readouterr().out == f"ike-data {version('ike-data')}\n"


def test_a_count_is_a_number(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.command(["inspect", "rows.jsonl", "--rows", "-1"])
    assert "'-1' is no number of rows" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, fix_tok, capsys) -> None:
    assert cli.command(["check", str(tmp_path / "rows.jsonl"), f"tokenizer.path={fix_tok.path}"]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"ike-data: {tmp_path / 'rows.jsonl'} does not exist")
