"""Answers made on a GPU are those that transformers gives on the CPU, prompt by prompt."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from transformers import AutoModelForCausalLM

from ike_core import InferencePipeline, load_config
from ike_core.batch import Vocabulary
from ike_tasks import Generate

PROMPTS = [[5, 9, 13], [17], [21, 25, 29, 33, 37, 41, 45], [49, 53], [57, 61, 65, 69]]
NEW_TOKENS = 24


@attrs.frozen
class Numbers:
    """A tokenizer whose texts are token ids: '5 9 13'."""

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(size=512, pad=2, eos=2)

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, tokens: Iterable[int]) -> str:
        return " ".join(map(str, tokens))

    def save(self, folder: Path) -> None: ...


@pytest.fixture
def answers(tmp_path: Path, llama: Path) -> Any:
    """Runs `Generate` over the prompts; the answers as token ids, in order."""

    def run(task: Generate, *overrides: str) -> list[list[int]]:
        prompts = [{"prompt": " ".join(map(str, prompt))} for prompt in PROMPTS]
        (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
        (tmp_path / "infer.toml").write_text(
            f"""
[run]
root = "runs"
[model]
path = "{llama}"
[inference]
uses = "ike_tasks:Generate"
files = ["questions.jsonl"]
output = "answers.jsonl"
"""
        )
        output = InferencePipeline(task=task, config=load_config(tmp_path / "infer.toml", *overrides)).run()
        return [list(map(int, json.loads(line)["answer"].split())) for line in output.read_text().splitlines()]

    return run


def alone_on_the_cpu(llama: Path) -> list[list[int]]:
    """Greedy, each prompt without others beside it; checks that no choice is so close that rounding could turn it."""
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
    said = []
    for prompt in PROMPTS:
        tokens = list(prompt)
        with torch.no_grad():
            while len(tokens) < len(prompt) + NEW_TOKENS and tokens[-1] != 2:
                best, second = model(input_ids=torch.tensor([tokens])).logits[0, -1].topk(2)
                assert best[0] - best[1] > 1e-3
                tokens.append(int(second[0]))
        said.append([token for token in tokens[len(prompt) :] if token != 2])
    return said


@pytest.mark.parametrize("engine", ["plain", "ZeRO-1", "ZeRO-3"], indirect=True)
def test_greedy_answers_are_those_of_the_cpu(answers, engine, llama) -> None:
    assert answers(Generate(tokenizer=Numbers(), max_new_tokens=NEW_TOKENS), *engine) == alone_on_the_cpu(llama)


def test_sampled_answers_repeat(answers) -> None:
    task = Generate(tokenizer=Numbers(), max_new_tokens=NEW_TOKENS, temperature=1.0, top_k=50, top_p=0.9)
    plain = 'engine.uses="ike_core.runtime:PlainTorch"'
    first = answers(task, plain)
    assert answers(task, plain) == first
    assert answers(task, plain, "run.seed=18") != first
