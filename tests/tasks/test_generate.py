"""Answers do not depend on what is generated beside them, and greedy ones are transformers' own."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from transformers import GenerationConfig

from ike_core.batch import Vocabulary
from ike_core.context import Context
from ike_core.errors import ConfigError, DataError
from ike_core.examples import Example, Segment, Skip
from ike_tasks import Generate, Packed, ScoringModel
from ike_tasks.sampling import AtText, KeyedNoise, sampler

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ 01234567"  # 61, with <pad>, <s> and </s> 64


@attrs.frozen
class Letters:
    """A token a letter, from 3 on; <s> before every text, </s> after it."""

    vocabulary: Vocabulary = attrs.field(factory=lambda: Vocabulary(size=64, pad=0, bos=1, eos=2))

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        tokens = [LETTERS.index(letter) + 3 for letter in text]
        return [1, *tokens, 2] if special_tokens else tokens

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join("_<>"[token] if token < 3 else LETTERS[token - 3] for token in tokens)

    def save(self, folder: Path) -> None: ...


class Chats(Letters):
    def chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        if messages[-1]["content"] == "no":
            raise DataError("the template refuses it")
        return self.encode(" ".join(message["content"] for message in messages))


PROMPTS = ("a", "hello there", "some words", "x y z", "01234567")


@pytest.fixture
def model(new_model) -> ScoringModel:
    return Packed().prepare(new_model()).eval()


def context(examples: Sequence[Example], *, seed: int = 5) -> Context:
    return Context(
        step=0, steps=1, seed=seed, examples=tuple(examples), new_generator=lambda s: torch.Generator().manual_seed(s)
    )


def prepared(task: Generate, prompts: Sequence[str] = PROMPTS) -> list[Example]:
    return [attrs.evolve(task.prepare({"prompt": text}), index=index) for index, text in enumerate(prompts)]


def answers(task: Generate, model, examples: Sequence[Example]) -> list[dict[str, Any]]:
    return task(model, task.collate(examples, task.tokenizer.vocabulary), context(examples))


def test_a_prompt_is_padded_on_the_left() -> None:
    task = Generate(tokenizer=Letters())
    batch = task.collate(prepared(task, ["a", "bcd"]), task.tokenizer.vocabulary)
    assert batch["input_ids"].tolist() == [[0, 0, 1, 3], [1, 4, 5, 6]]  # the closing </s> is not part of a prompt
    assert batch["attention_mask"].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert batch.weights["examples"] == 2.0


SETTINGS = ({}, {"temperature": 1.5}, {"temperature": 0.8, "top_k": 9, "top_p": 0.7}, {"stop": ("e", "Q4")})


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_cut_changes_an_answer(settings, model) -> None:
    task = Generate(tokenizer=Letters(), max_new_tokens=12, **settings)
    examples = prepared(task)
    together = answers(task, model, examples)
    assert len({row["answer"] for row in together}) > 1
    assert together == [row for example in examples for row in answers(task, model, [example])]
    backwards = answers(task, model, examples[::-1])
    assert together == backwards[::-1]


def test_greedy_answers_are_transformers_own(model, copy_of) -> None:
    task = Generate(tokenizer=Letters(), max_new_tokens=9)
    reference = copy_of(model.lm)
    reference.set_attn_implementation("sdpa")
    for example, row in zip(prepared(task), answers(task, model, prepared(task)), strict=True):
        prompt = torch.tensor([list(example.trunk.tokens)])
        wanted = reference.generate(prompt, max_new_tokens=9, do_sample=False, pad_token_id=0)[0, prompt.shape[1] :]
        wanted = wanted.tolist()
        assert row["finish_reason"] == ("stop" if wanted[-1] == 2 else "length")
        assert row["answer"] == Letters().decode([token for token in wanted if token != 2])


def test_what_the_models_own_file_says_of_sampling_is_not_used(model) -> None:
    task = Generate(tokenizer=Letters(), max_new_tokens=9)
    before = answers(task, model, prepared(task))
    own = GenerationConfig(do_sample=True, temperature=3.0, repetition_penalty=9.0, min_new_tokens=8, eos_token_id=2)
    model.lm.generation_config = own
    assert answers(task, model, prepared(task)) == before
    assert model.lm.generation_config is own


def test_end_tokens_of_the_model_end_an_answer_too(model) -> None:
    task = Generate(tokenizer=Letters(), max_new_tokens=9)
    (free,) = answers(task, model, prepared(task, ["x y z"]))
    letter = next(letter for letter in free["answer"][2:] if letter in LETTERS)
    model.lm.generation_config.eos_token_id = [2, *Letters().encode(letter)]
    (row,) = answers(task, model, prepared(task, ["x y z"]))
    before = free["answer"].partition(letter)[0]
    assert row == {"answer": before, "finish_reason": "stop", "answer_tokens": len(before)}


def test_a_stop_text_ends_an_answer_and_is_not_part_of_it(model) -> None:
    free = Generate(tokenizer=Letters(), max_new_tokens=12)
    (whole,) = answers(free, model, prepared(free, ["hello there"]))
    stop = whole["answer"][3:5]
    task = attrs.evolve(free, stop=("never said", stop))
    (row,) = answers(task, model, prepared(task, ["hello there"]))
    assert row["answer"] == whole["answer"].partition(stop)[0]
    assert row["finish_reason"] == "stop"
    assert row["answer_tokens"] == whole["answer"].index(stop) + 2  # the stop's own two letters were generated


def test_a_stop_text_is_found_however_its_tokens_fall() -> None:
    pieces = {1: "ab", 2: "c", 3: "dEN", 4: "D", 5: "x"}
    criterion = AtText(("END",), lambda tokens: "".join(pieces[token] for token in tokens), prompt_length=1)
    ids = torch.tensor([[3, 1, 3, 4], [3, 4, 2, 5], [5, 3, 4, 5]])
    assert criterion(ids, None).tolist() == [True, False, True]
    assert criterion(ids[:, :2], None).tolist() == [False, False, False]  # "dEN" of the prompt and "D" are no stop


def test_noise_draws_from_the_softmax() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).log_softmax(1)
    noise = KeyedNoise([torch.Generator().manual_seed(1)])
    draws = 4000
    counts = Counter(noise(torch.zeros(1, 1), logits).argmax(1).item() for _ in range(draws))
    for token, probability in enumerate(logits.exp()[0].tolist()):
        deviation = (probability * (1 - probability) / draws) ** 0.5
        assert counts[token] / draws == pytest.approx(probability, abs=4 * deviation)


def test_unlikely_tokens_are_never_drawn() -> None:
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    generators = [torch.Generator().manual_seed(1)]
    two = sampler(generators, temperature=5.0, top_k=2, top_p=1.0)
    assert {two(torch.zeros(1, 1), logits.clone()).argmax(1).item() for _ in range(200)} == {0, 1}
    # softmax: .64, .24, .09, .03: the first two reach 0.8
    most = sampler(generators, temperature=1.0, top_k=0, top_p=0.8)
    assert {most(torch.zeros(1, 1), logits.clone()).argmax(1).item() for _ in range(200)} == {0, 1}


def test_the_answer_goes_to_the_column_that_was_asked_for(model) -> None:
    task = Generate(tokenizer=Letters(), max_new_tokens=2, answer="said")
    (row,) = answers(task, model, prepared(task, ["a"]))
    assert set(row) == {"said", "finish_reason", "answer_tokens"}


def test_filler_gives_no_rows(model) -> None:
    task = Generate(tokenizer=Letters())
    assert answers(task, model, []) == []


def test_a_conversation_is_asked_for_what_follows_the_last_user(model) -> None:
    task = Generate(tokenizer=Chats())
    asked = [{"role": "user", "content": "hi"}]
    example = task.prepare({"messages": [*asked, {"role": "assistant", "content": "left out"}], "prompt": "not this"})
    assert example == Example((Segment.prompt(Letters().encode("hi")),))
    no_answer = task.prepare({"messages": [{"role": "assistant", "content": "hi"}]})
    assert no_answer == Skip("'messages' has nothing to answer")
    assert task.prepare({"messages": [{"role": "user", "content": "no"}]}) == Skip("the template refuses it")
    assert task.prepare({"messages": "hi"}) == Skip("'messages' is not a list of messages")


def test_rows_without_a_prompt_are_skipped_and_say_why() -> None:
    task = Generate(tokenizer=Letters())
    for record in ({"question": "hi"}, {"prompt": ""}, {"prompt": 3}):
        assert task.prepare(record) == Skip("no messages under 'messages' and no text under 'prompt'")
    assert isinstance(attrs.evolve(task, prompt="question").prepare({"question": "hi"}), Example)
    with pytest.raises(ConfigError, match="Letters renders no conversations"):
        task.prepare({"messages": [{"role": "user", "content": "hi"}]})


def test_metrics_are_means_over_all_rows() -> None:
    rows = [{"answer_tokens": 3, "finish_reason": "stop"}, {"answer_tokens": 8, "finish_reason": "length"}]
    assert Generate(tokenizer=Letters()).metrics(rows) == {"answer_tokens": 5.5, "finished": 0.5}
    assert Generate(tokenizer=Letters()).metrics([]) == {}


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}, {"max_new_tokens": 0}]
)
def test_settings_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ValueError):
        Generate(tokenizer=Letters(), **wrong)
