"""`train` and `infer` before their first rank."""

from pathlib import Path

import pytest
from tests.launch.conftest import Launch

pytestmark = pytest.mark.usefixtures("needs_torch")

RUN = """
[model]
path = "model"
[data.train]
files = ["rows.jsonl"]
[data.train.processor]
uses = "parts:Rows"
[objective]
uses = "parts:Focal"
"""
PARTS = """
import attrs

@attrs.frozen
class Focal:
    gamma: float = 2.0

    def __attrs_post_init__(self):
        raise ValueError("gamma must be less than the moon")

@attrs.frozen
class Rows:
    column: str = "text"
"""


def test_what_only_the_parts_know_is_told_by_one_child(launch: Launch, tmp_path: Path) -> None:
    """Nothing reads this from the source: the part is imported and built once, and no rank starts."""
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "model").mkdir()
    ended = launch("train", "run.toml", "--ranks", "2", "~tokenizer", "~checkpoint")
    assert ended.code == 2, ended.stderr
    assert ended.stderr.count("gamma must be less than the moon") == 1
    assert "rank" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "runs").exists()


def test_a_step_that_cannot_be_dealt_starts_nothing(launch: Launch, tmp_path: Path) -> None:
    """B25, by the command."""
    (tmp_path / "run.toml").write_text(RUN + "[batch]\nexamples_per_step = 2\n")
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "model").mkdir()
    ended = launch("train", "run.toml", "--ranks", "3")
    assert ended.code == 2
    assert "batch.examples_per_step = 2 can't be dealt to 3 ranks" in ended.last_line
    assert "run.toml:11" in ended.last_line
    assert not (tmp_path / "runs").exists()
