"""A part of the user's own that gives rows: named by a table, kept like files, made anew when it gives others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ike_core import DataError, load_config
from ike_core.section_rows import rows_of
from ike_data import InstructionProcessor
from ike_data.cli import command

LAB = """
from pathlib import Path
import attrs

@attrs.frozen
class Rows:
    count: int
    words: Path
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return {"prompt": self.words.read_text(), "response": str(index)}

@attrs.frozen
class Stream:
    count: int
    def __iter__(self):
        return ({"prompt": "a", "response": str(index)} for index in range(self.count))
"""


@pytest.fixture
def lab(fix_tok, tmp_path: Path, monkeypatch) -> str:
    """A run file, beside the module that its source is from."""
    (tmp_path / "own_rows_lab.py").write_text(LAB)
    (tmp_path / "words.txt").write_text("a")
    (tmp_path / "run.toml").write_text(f"""
        tokenizer.path = "{fix_tok.path}"
        [data]
        cache = "cache"
        workers = 1
        [data.train]
        max_tokens = 16
        source = {{ uses = "own_rows_lab:Rows", count = 3, words = "words.txt" }}
        processor.uses = "ike_data:InstructionProcessor"
        """)
    yield str(tmp_path / "run.toml")
    import sys

    sys.modules.pop("own_rows_lab", None)


STREAM = "data.train.source={uses='own_rows_lab:Stream', count=3}"


@pytest.fixture
def prepared(lab: str, capsys) -> Callable[..., str]:
    """Whether `ike-data prepare` made the store, or found it."""

    def prepared(*settings: str) -> str:
        assert command(["prepare", lab, *settings]) == 0
        return "made" if "made in" in capsys.readouterr().out else "found"

    return prepared


def test_a_store_is_of_the_source_s_fields_and_of_the_files_that_they_name(prepared, tmp_path) -> None:
    assert [prepared(), prepared(), prepared("data.train.source.count=4"), prepared()] == [
        "made",
        "found",
        "made",
        "found",
    ]
    (tmp_path / "words.txt").write_text("b")
    assert prepared() == "made"


def test_rows_are_looked_at_and_counted_like_those_of_files(lab, capsys) -> None:
    assert command(["check", lab]) == 0
    assert "3 rows" in capsys.readouterr().out
    assert command(["inspect", lab]) == 0
    assert "Rows[2]" in capsys.readouterr().out


def test_what_it_gives_is_compared_at_every_start(fix_tok, read) -> None:
    class Given:
        answer = "x"

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, str]:
            return {"prompt": "a", "response": self.answer}

        def description(self) -> dict[str, str]:
            return {}

    Given.__qualname__ = "Given"
    globals()["Given"] = Given
    given = Given()
    processor = InstructionProcessor(fix_tok)
    assert len(read(given, processor).kept) == 3
    given.answer = "y"
    with pytest.raises(
        DataError, match=r"train data: Given\[0\]: Given, or InstructionProcessor, gives something else"
    ):
        read(given, processor)


def test_a_stream_is_read_once_by_prepare_and_then_like_files(lab, prepared, fix_tok, read, tmp_path) -> None:
    config = load_config(lab, STREAM)
    stream: Any = rows_of("train", config.data.train, None)
    options = {"max_tokens": 16, "cache": tmp_path / "cache"}
    with pytest.raises(DataError, match=r"train data: Stream is a stream\. .* have `ike-data prepare` read it once"):
        read(stream, InstructionProcessor(fix_tok), **options)
    assert prepared(STREAM) == "made"
    parts = read(stream, InstructionProcessor(fix_tok), **options)
    assert [example.source for example in parts.kept] == ["Stream[0]", "Stream[1]", "Stream[2]"]
