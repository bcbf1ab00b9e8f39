"""What inference refuses, and where an answer finds no room: told before any answer is made, or on the row itself."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from torch import nn

from ike_core import Batch, ConfigError, Example, InferencePipeline, load_config
from ike_core.examples import Segment

POSITIONS = 20
NEW_TOKENS = 6


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(
            vocab_size=9, pad_token_id=0, bos_token_id=None, eos_token_id=None, max_position_embeddings=POSITIONS
        )


@attrs.define
class Said:
    """Notes which prompts came together."""

    max_new_tokens: int = NEW_TOKENS
    together: list[list[int]] = attrs.field(factory=list)

    def prepare(self, record: Mapping[str, Any]) -> Example:
        return Example((Segment.prompt([1] * record["length"]),))

    def collate(self, examples: Sequence[Example], vocabulary: Any) -> Batch:
        return Batch({"input_ids": torch.zeros(1, 1)}, {"examples": float(len(examples))})

    def __call__(self, model: nn.Module, batch: Batch, context: Any) -> list[dict[str, Any]]:
        self.together.append([len(example) for example in context.examples])
        return [{"answer": "x"} for _ in context.examples]

    def metrics(self, rows: Any) -> dict[str, float]:
        return {}


def infer(
    folder: Path, task: Said, lengths: Sequence[int], tokens_per_device: int, *, output: str = "said.jsonl"
) -> list[dict[str, Any]]:
    (folder / "asked.jsonl").write_text("".join(json.dumps({"length": length}) + "\n" for length in lengths))
    config = load_config(
        'engine.uses="ike_core.runtime:PlainTorch"',
        "~checkpoint",
        f'run.root="{folder / "runs"}"',
        'inference.uses="ike_tasks:Generate"',
        f'inference.files=["{folder / "asked.jsonl"}"]',
        f'inference.output="{folder / output}"',
        f"batch.tokens_per_device={tokens_per_device}",
    )
    written = InferencePipeline(model=Model(), task=task, config=config).run()
    return [json.loads(line) for line in written.read_text().splitlines()]


def test_a_prompt_whose_answer_has_no_positions_left_is_a_row_that_says_so(tmp_path: Path) -> None:
    rows = infer(tmp_path, Said(), [14, 15], tokens_per_device=100)
    assert rows[0] == {"length": 14, "answer": "x"}, "14 + 6 are the model's 20 positions"
    assert rows[1] == {
        "length": 15,
        "skipped": "15 tokens and max_new_tokens = 6 are more than the model's 20 positions",
    }


def test_answers_count_in_what_a_micro_batch_holds(tmp_path: Path) -> None:
    task = Said()
    rows = infer(tmp_path, task, [2] * 5, tokens_per_device=16)
    assert [row["answer"] for row in rows] == ["x"] * 5
    assert sorted(map(len, task.together)) == [1, 2, 2], "2 rows of 2 + 6 tokens fill 16"


def test_a_prompt_that_no_micro_batch_holds_with_its_answer_names_the_ceiling(tmp_path: Path) -> None:
    rows = infer(tmp_path, Said(), [2, 11], tokens_per_device=16)
    reason = "11 tokens and max_new_tokens = 6 are more than batch.tokens_per_device = 16"
    assert rows[1] == {"length": 11, "skipped": reason}


@pytest.mark.parametrize(
    ("output", "said"), [("", "is a folder; name a file in it"), ("asked.jsonl", "is one of inference.files")]
)
def test_an_output_that_would_lose_something_is_refused_before_any_answer(
    tmp_path: Path, output: str, said: str
) -> None:
    task = Said()
    with pytest.raises(ConfigError, match=said):
        infer(tmp_path, task, [2], tokens_per_device=16, output=output)
    assert task.together == []
    assert (tmp_path / "asked.jsonl").read_text() == '{"length": 2}\n'


def test_an_output_that_was_there_is_replaced_when_the_new_one_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "said.jsonl").write_text("earlier\n")
    assert infer(tmp_path, Said(), [2], tokens_per_device=16) == [{"length": 2, "answer": "x"}]
    assert "said.jsonl in place of an earlier one" in capsys.readouterr().out
