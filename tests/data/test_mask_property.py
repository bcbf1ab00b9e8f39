"""Over random conversations and public chat templates: what is learned is the assistant's, to the character.

The expectation owes nothing to ike. transformers renders the conversation once with its texts and once with a word in
place of each; where the words lie tells where each turn is. How a template heads and ends the assistant's turns is
written down here, as its makers publish it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from ike_core import Skip
from ike_data import ChatProcessor, HFTokenizer

CHATML = ("<|im_start|>assistant\n", "<|im_end|>")
GEMMA = ("<start_of_turn>model\n", "<end_of_turn>")
LLAMA = ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>")
PHI = ("<|assistant|>\n", "<|end|>")
DEEPSEEK = ("<\uff5cAssistant\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>")
COHERE = ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
TEMPLATES: dict[str, tuple[str, str]] = {
    "cohere": COHERE,
    "deepseek_r1_distill": DEEPSEEK,
    "deepseekv3": DEEPSEEK,
    "gemma": GEMMA,
    "gemma3": GEMMA,
    "lfm2": CHATML,
    "llama3": LLAMA,
    "llama3_1": LLAMA,
    "llama3_2": LLAMA,
    "phi3": PHI,
    "phi3_5": PHI,
    "qwen2_5": CHATML,
    "qwen3": CHATML,
    "qwen3_instruct_2507": CHATML,
}
"""File in trl's chat_templates -> what an answer stands behind, and what ends it."""
CONTROL = sorted(
    {
        *re.findall(r"<[^>]+>", "".join(head + end for head, end in TEMPLATES.values())),
        *("<start_of_turn>", "<|user|>", "<|system|>", "<|USER_TOKEN|>", "<|SYSTEM_TOKEN|>", "<\uff5cUser\uff5c>"),
    }
)
SPELLINGS = ("<|im_end|>", "<|im_start|>user\n", "<eos>", "<|im_end|>\n<|im_start|>assistant\nx")

CORES = st.lists(
    st.sampled_from(["a", "ok", "é", "🤷🏽", "👨‍👩‍👧", "x = 1\n    y", "\n\n", "|", " hi", "<b>", "{{ x }}", "."]),
    max_size=4,
).map(lambda pieces: ("b" + "".join(pieces)).strip())
SPACES = st.sampled_from(["", "", "", " ", "\n", "    ", "\n\n", "\t"])
WORD = "WORD{}WORD"


@attrs.frozen
class Text:
    """White space, what is said, white space; perhaps a thought before."""

    core: str
    before: str = ""
    behind: str = ""
    thought: str = ""

    def shown(self, word: str = "") -> str:
        """With a word in place of what is said and thought."""
        thought = f"<think>\n{word + 'T' if word else self.thought}\n</think>\n\n" if self.thought else ""
        return thought + self.before + (word or self.core) + self.behind


TEXT = st.builds(Text, CORES, SPACES, SPACES)
THOUGHT = st.builds(Text, CORES, thought=CORES)
SPELT = st.builds(Text, st.tuples(CORES, st.sampled_from(SPELLINGS), CORES).map("".join))


def talks(asked: st.SearchStrategy[Text], answered: st.SearchStrategy[Text]) -> st.SearchStrategy[list[Text]]:
    """User and assistant in turn."""
    turns = st.lists(st.tuples(asked, answered), min_size=1, max_size=3)
    return turns.map(lambda turns: [text for turn in turns for text in turn])


TALK = talks(st.one_of(TEXT, st.just(Text(""))), st.one_of(TEXT, TEXT, THOUGHT))
SPELLING = talks(st.one_of(TEXT, SPELT), st.one_of(TEXT, SPELT))
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def alike(talk: Sequence[Text], number: int) -> list[Text]:
    """Another conversation, with as many texts and the same white space around them."""
    return [
        attrs.evolve(text, core=text.core and f"{number}{place}", thought=text.thought and f"thought {number}")
        for place, text in enumerate(talk)
    ]


def messages(talk: Sequence[Text], *, words: bool) -> list[dict[str, Any]]:
    """User and assistant in turn."""
    return [
        {"role": ("user", "assistant")[place % 2], "content": text.shown(WORD.format(place) if words else "")}
        for place, text in enumerate(talk)
    ]


@attrs.frozen
class House:
    """A template with how it heads and ends an answer, and transformers' own reading of it."""

    processor: ChatProcessor
    tokenizer: HFTokenizer
    theirs: Any
    source: str
    head: str
    end: str

    def render(self, talk: list[dict[str, Any]], tools: Any = None) -> str:
        names = {name: str(token) for name, token in self.theirs.special_tokens_map.items() if isinstance(token, str)}
        rendered, _ = render_jinja_template([talk], tools=tools, chat_template=self.source, **names)
        return rendered[0]

    def pieces(self, talk: Sequence[Text]) -> tuple[str, list[tuple[int, int]]]:
        """The rendering, and where each answer lies in it."""
        worded = self.render(messages(talk, words=True))
        cuts = []
        for place in range(1, len(talk), 2):
            word = WORD.format(place)
            first = min(at for at in (worded.find(word + "T"), worded.find(word)) if at >= 0)
            last = worded.index(self.end, worded.rindex(word)) + len(self.end)
            cuts.append((worded.rindex(self.head, 0, first) + len(self.head), last))
        text, at, spans = "", 0, []
        for start, stop in cuts:
            text += filled(worded[at:start], talk)
            answer = filled(worded[start:stop], talk)
            spans.append((len(text), len(text) + len(answer)))
            text, at = text + answer, stop
        return text + filled(worded[at:], talk), spans

    def check(self, talk: Sequence[Text]) -> Any:
        """The example has the ids and the mask of the rendering; a Skip is handed back."""
        before = [alike(talk, number) for number in range(2)]  # what is rendered for them is used for this one
        rows = [{"messages": messages(said, words=False)} for said in (*before, talk)]
        *_, (item,) = self.processor.process_block(rows)
        if isinstance(item, Skip):
            return item
        text, spans = self.pieces(talk)
        assert text == self.render(messages(talk, words=False))
        if any(word in said.core for said in talk for word in self.theirs.all_special_tokens):
            self.check_controls(item, text, talk)
        else:
            encoded = self.theirs(text, add_special_tokens=False, return_offsets_mapping=True)
            assert list(item.trunk.tokens) == encoded["input_ids"]
            assert list(item.trunk.weights) == [
                float(any(start < stop and end > first for first, stop in spans))
                for start, end in encoded["offset_mapping"]
            ]
        self.check_runs(item, text, spans)
        return item

    def check_controls(self, item: Any, text: str, talk: Sequence[Text]) -> None:
        """What the row spells is text: there are as many control tokens as the template writes itself."""
        assert self.tokenizer.decode(item.trunk.tokens) == text
        special = set(self.theirs.all_special_ids)
        bare = self.theirs(self.render(messages(talk, words=True)), add_special_tokens=False)["input_ids"]
        assert [token for token in item.trunk.tokens if token in special] == [t for t in bare if t in special]
        assert item.notes == ("spells a control token: read as text",)

    def check_runs(self, item: Any, text: str, spans: Sequence[tuple[int, int]]) -> None:
        """The learned tokens of each turn say its text, and at most white space that merged with it."""
        for said, (first, stop) in zip(runs(item), spans, strict=True):
            decoded = self.tokenizer.decode(said)
            assert decoded.endswith(text[first:stop])
            assert decoded[: len(decoded) - (stop - first)].strip() == ""


def filled(text: str, talk: Sequence[Text]) -> str:
    """With the words given back for what was said."""
    for place, said in enumerate(talk):
        text = text.replace(WORD.format(place) + "T", said.thought).replace(WORD.format(place), said.core)
    return text


def runs(example: Any) -> Iterator[list[int]]:
    """The learned tokens of each turn."""
    run: list[int] = []
    for token, weight in zip(example.trunk.tokens, example.trunk.weights, strict=True):
        if weight:
            run.append(token)
        elif run:
            yield run
            run = []
    if run:
        yield run


@pytest.fixture(scope="session")
def templates() -> Path:
    found = find_spec("trl")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the trl wheel, for its chat templates")
    return Path(found.submodule_search_locations[0], "chat_templates")


@pytest.fixture(scope="session")
def bytes_folder(byte_level, tmp_path_factory) -> Path:
    """FIX-TOK with the control tokens of all templates."""
    folder = tmp_path_factory.mktemp("bytes")
    byte_level(adds_bos=False, strips="").save(str(folder / "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return extended(folder, folder)


@pytest.fixture(scope="session")
def qwen3_folder(shared_data, tmp_path_factory) -> Path:
    """Qwen3's, with the control tokens of all templates."""
    return extended(shared_data / "tokenizers/qwen3", tmp_path_factory.mktemp("qwen3"))


def extended(source: Path, folder: Path) -> Path:
    loaded = AutoTokenizer.from_pretrained(str(source))
    loaded.add_special_tokens({"additional_special_tokens": CONTROL})
    if loaded.bos_token is None:
        loaded.add_special_tokens({"bos_token": "<bos>"})
    loaded.save_pretrained(str(folder))
    return folder


def house(folder: Path, templates: Path, name: str) -> House:
    file = templates / f"{name}.jinja"
    tokenizer = HFTokenizer(path=str(folder), chat_template=file, template_date="2026-01-31")
    source = file.read_text().replace("strftime_now(", "'31 Jan 2026'.format(")  # the day that the tokenizer is told
    return House(
        ChatProcessor(tokenizer), tokenizer, AutoTokenizer.from_pretrained(str(folder)), source, *TEMPLATES[name]
    )


def is_true(reason: str, its: House, talk: Sequence[Text]) -> bool:
    """Whether a reason to refuse a conversation is one."""
    if reason.startswith("the chat template refuses it"):
        try:
            its.render(messages(talk, words=False))
        except (TemplateError, TypeError):
            return True
    if left_out := re.match(r"the chat template leaves out what messages\[(\d+)\] says", reason):
        return WORD.format(left_out[1]) not in its.render(messages(talk, words=True)).replace("T", "")
    return False


def holds(its: House, talks: st.SearchStrategy[list[Text]], *, examples: int) -> None:
    """Every conversation is right, or refused for a true reason; and few are refused."""
    refused: list[str] = []
    seen = []

    @settings(QUICK, max_examples=examples)
    @given(talk=talks)
    def property_holds(talk: list[Text]) -> None:
        item = its.check(talk)
        seen.append(talk)
        if isinstance(item, Skip):
            refused.append(item.reason)
            assert is_true(item.reason, its, talk), item.reason

    property_holds()
    assert len(refused) <= 0.05 * len(seen), refused[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_s_answers_are_what_is_learned(bytes_folder, templates, name) -> None:
    holds(house(bytes_folder, templates, name), TALK, examples=12)


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_row_spells_is_nobody_s_control_token(bytes_folder, templates, name) -> None:
    holds(house(bytes_folder, templates, name), SPELLING, examples=6)


@pytest.mark.parametrize("name", ["gemma3", "qwen3"])
def test_on_a_real_tokenizer(qwen3_folder, templates, name) -> None:
    holds(house(qwen3_folder, templates, name), TALK, examples=8)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_over_many_conversations(bytes_folder, qwen3_folder, templates, name) -> None:
    for folder in (bytes_folder, qwen3_folder):
        for talks in (TALK, SPELLING):
            holds(house(folder, templates, name), talks, examples=150)


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
@pytest.mark.parametrize("argument", ["x", "<b>", "\u00e9\U0001f937", "a b"])
def test_calls_of_tools_are_learned_and_their_results_read(bytes_folder, templates, name, argument) -> None:
    its = house(bytes_folder, templates, name)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": {"type": "string"}}}}]
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": argument}}}
    talk = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "<tool_call>no</tool_call>"},
        {"role": "assistant", "content": "done"},
    ]
    (item,) = ChatProcessor(its.tokenizer).process({"messages": talk, "tools": tools})
    assert its.tokenizer.decode(item.trunk.tokens) == its.render(talk, tools)
    called = json.dumps({"name": "f", "arguments": {"x": argument}}, ensure_ascii=False)
    thought = "<think>\n\n</think>\n\n" if name == "qwen3" else ""  # before the last answer
    assert [its.tokenizer.decode(run) for run in runs(item)] == [
        f"<tool_call>\n{called}\n</tool_call><|im_end|>",
        f"{thought}done<|im_end|>",
    ]


def test_an_answer_that_the_generation_prompt_does_not_lead_to_is_refused(bytes_folder, templates) -> None:
    file = templates / "nemotron_3_nano.jinja"  # prompts with an opened <think>, and renders an empty block
    processor = ChatProcessor(HFTokenizer(path=str(bytes_folder), chat_template=file))
    (item,) = processor.process({"messages": messages([Text("a"), Text("b")], words=False)})
    assert item.reason.startswith("can't place a turn's start: ")


def test_a_template_without_end_of_turn_is_refused(bytes_folder, templates) -> None:
    processor = ChatProcessor(HFTokenizer(path=str(bytes_folder), chat_template=templates / "glm4moe.jinja"))
    (item,) = processor.process({"messages": messages([Text("a"), Text("b")], words=False)})
    assert item.reason.startswith("no end-of-turn: ")
