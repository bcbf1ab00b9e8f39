"""`ike-data prepare`: what it would make in vain, it refuses."""

from pathlib import Path

import pytest

from ike_data.cli import command

PLAIN = """
from ike_core.examples import Example

class Plain:
    def __init__(self):
        self.anything = object()

    def process(self, record):
        yield Example.of([1, 2], [0.0, 1.0])
"""


@pytest.fixture
def layer(write, fix_tok, tmp_path: Path) -> str:
    write("rows.jsonl", [{"prompt": "a", "response": "b"}] * 3)
    (tmp_path / "plain_rows.py").write_text(PLAIN)
    (tmp_path / "run.toml").write_text(f"""
        tokenizer.path = "{fix_tok.path}"
        data.cache = "cache"
        data.workers = 1
        data.train.files = ["rows.jsonl"]
        data.train.processor.uses = "ike_data:InstructionProcessor"
        """)
    return str(tmp_path / "run.toml")


def test_a_limit_that_only_the_model_tells_must_be_said(layer: str, tmp_path: Path, capsys) -> None:
    assert command(["prepare", layer]) == 2
    assert "is only known when the model is built; say max_tokens in data.train" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()
    assert command(["prepare", layer, "data.train.max_tokens=16"]) == 0
    assert "train data: 3 rows as prompt_completion, 3 examples" in capsys.readouterr().out


def test_files_stand_in_the_place_of_the_run_s(layer: str, write, capsys) -> None:
    other = write("other.jsonl", [{"prompt": "a", "response": "b"}] * 5)
    assert command(["prepare", layer, other, "data.train.max_tokens=16"]) == 0
    assert "train data: 5 rows" in capsys.readouterr().out


def test_what_can_t_be_kept_is_not_made(layer: str, capsys) -> None:
    words = ["data.train.max_tokens=16", "~data.train.processor", "data.train.processor.uses=plain_rows:Plain"]
    assert command(["prepare", layer, *words]) == 3
    assert "train data: its store can't be kept for later runs: " in capsys.readouterr().err


def test_what_a_run_would_refuse_is_refused(layer: str, tmp_path: Path, capsys) -> None:
    assert command(["prepare", layer, "data.train.max_tokens=2"]) == 3  # a, b and the eos
    said = capsys.readouterr().err
    assert "none of 3 rows can be used" in said
    (ledger,) = (tmp_path / "cache").glob("*.ledger.jsonl")
    assert '"source":"rows.jsonl:1"' in ledger.read_text()


def test_stores_have_a_ledger_each(layer: str, write, tmp_path: Path, capsys) -> None:
    write("rows.jsonl", [{"prompt": "a", "response": "b"}] * 3 + [{"prompt": "a", "response": ""}])
    for limit in (8, 9):
        assert command(["prepare", layer, f"data.train.max_tokens={limit}", "data.ledger.budget=0.5"]) == 0
    said = capsys.readouterr().out
    ledgers = sorted((tmp_path / "cache").glob("*.ledger.jsonl"))
    assert [str(ledger) in said for ledger in ledgers] == [True, True]
    assert ['"source":"rows.jsonl:4"' in ledger.read_text() for ledger in ledgers] == [True, True]


def test_a_token_index_is_measured_and_found_by_the_run(layer: str, tmp_path: Path, capsys) -> None:
    import numpy as np

    np.save(tmp_path / "corpus.npy", np.arange(1, 6, dtype=np.uint16))
    np.save(tmp_path / "corpus.offsets.npy", np.array([0, 2, 5]))
    words = ["prepare", layer, str(tmp_path / "corpus.npy"), "data.train.max_tokens=16"]
    assert [command(words), command(words)] == [0, 0]
    assert "train data: 2 rows, 2 examples, 5 tokens, 3 supervised" in capsys.readouterr().out
    assert len(list((tmp_path / "cache").glob("*.in-place"))) == 1
