"""What a run file may say of a tokenizer: its template, its end, its day."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from ike_core import ConfigError, DataError, Vocabulary
from ike_data import ChatProcessor, HFTokenizer

ROW = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ok"}]}
OTHER = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}" + (
    "{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
)


def example_of(tokenizer: HFTokenizer) -> Any:
    (example,) = ChatProcessor(tokenizer).process(ROW)
    return example


def test_a_template_from_a_file_takes_the_place_of_the_tokenizer_s_own(fix_tok, learned, tmp_path) -> None:
    (tmp_path / "other.jinja").write_text(OTHER)
    tokenizer = attrs.evolve(fix_tok, chat_template=tmp_path / "other.jinja")
    example = example_of(tokenizer)
    assert tokenizer.decode(example.trunk.tokens) == "<|im_start|>user: Hi<|im_end|><|im_start|>assistant: ok<|im_end|>"
    assert learned(tokenizer, example) == "ok<|im_end|>"
    tokenizer.save(tmp_path / "saved")
    assert example_of(HFTokenizer(path=str(tmp_path / "saved"))) == example


def test_a_template_that_is_no_file_is_refused(fix_tok, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.chat_template = '.*absent.jinja' can't be read: "):
        example_of(attrs.evolve(fix_tok, chat_template=tmp_path / "absent.jinja"))


def test_another_token_can_be_the_eos(fix_tok, tmp_path) -> None:
    tokenizer = attrs.evolve(fix_tok, eos_token="<|im_end|>")
    assert tokenizer.vocabulary.eos == 4
    assert tokenizer.vocabulary.size == fix_tok.vocabulary.size
    assert example_of(tokenizer) == example_of(fix_tok)
    tokenizer.save(tmp_path / "saved")
    assert json.loads(Path(tmp_path, "saved/tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"


def test_an_eos_that_the_tokenizer_does_not_have_is_refused_with_the_nearest(fix_tok) -> None:
    with pytest.raises(
        ConfigError, match=r"eos_token = '<eoss>': the tokenizer has no such token; did you mean '<eos>'"
    ):
        example_of(attrs.evolve(fix_tok, eos_token="<eoss>"))


def test_an_eos_that_the_template_never_emits_is_refused(fix_tok) -> None:
    with pytest.raises(DataError, match=r"eos_token = '<eos>': the chat template never ends an answer with it"):
        example_of(attrs.evolve(fix_tok, eos_token="<eos>"))


def test_a_template_that_emits_no_end_of_turn_refuses_the_run(saved, template, write, read) -> None:
    tokenizer = saved(chat=template(assistant="{{ '<|im_start|>assistant\n' + message.content + '\n' }}"))
    with pytest.raises(DataError, match="none of 3 rows can be used: 3 no end-of-turn"):
        read(write("a.jsonl", [ROW] * 3), ChatProcessor(tokenizer))


def test_the_day_that_a_template_asks_for_is_the_one_that_is_set(saved, template) -> None:
    dated = saved(chat=template(before="{{ strftime_now('%d %B %Y') + '\n' }}"))
    assert "'strftime_now' is undefined" in example_of(dated).reason
    tokenizer = attrs.evolve(dated, template_date="2026-01-31")
    assert tokenizer.decode(example_of(tokenizer).trunk.tokens).startswith("31 January 2026\n<|im_start|>user")


def test_a_day_is_written_as_a_day() -> None:
    with pytest.raises(ValueError, match="'template_date' must be a day such as 2026-01-31: today"):
        HFTokenizer(path="x", template_date="today")


def test_a_run_file_says_them(fix_tok, tmp_path) -> None:
    from ike_core import load_config

    (tmp_path / "other.jinja").write_text(OTHER)
    (tmp_path / "run.toml").write_text(
        f'[model]\npath = "{fix_tok.path}"\n[tokenizer]\npath = "{fix_tok.path}"\nchat_template = "other.jinja"\n'
        'eos_token = "<|im_end|>"\ntemplate_date = "2026-01-31"\n'
    )
    tokenizer = load_config(str(tmp_path / "run.toml")).tokenizer.build()
    assert tokenizer == HFTokenizer(
        path=fix_tok.path,
        chat_template=tmp_path / "other.jinja",
        eos_token="<|im_end|>",
        template_date="2026-01-31",
    )


def test_added_tokens_are_plain_tokens_behind_those_that_are_there(fix_tok, learned, tmp_path) -> None:
    tokenizer = attrs.evolve(fix_tok, add_tokens=("<call>", "h", "</call>"))
    own = fix_tok.vocabulary
    assert own == Vocabulary(size=263, pad=0, bos=1, eos=2)  # 5 specials, 256 bytes, 2 merges
    assert tokenizer.vocabulary == Vocabulary(size=265, pad=0, bos=1, eos=2, added=2)  # it has an h
    assert tokenizer.encode("a<call>b</call>")[1::2] == [263, 264]
    row = {"messages": [ROW["messages"][0], {"role": "assistant", "content": "x<call>y</call>"}]}
    (example,) = ChatProcessor(tokenizer).process(row)
    assert list(example.trunk.tokens).count(263) == 1  # in content too: only special tokens are text there
    assert learned(tokenizer, example) == "x<call>y</call><|im_end|>"
    tokenizer.save(tmp_path / "saved")
    again = HFTokenizer(path=str(tmp_path / "saved"))
    assert list(ChatProcessor(again).process(row)) == [example]
    assert again.vocabulary == Vocabulary(size=265, pad=0, bos=1, eos=2)


def test_padding_and_end_can_be_tokens_that_are_added(fix_tok, template, tmp_path) -> None:
    (tmp_path / "t.jinja").write_text(OTHER.replace("<|im_end|>", "<end>"))
    tokenizer = attrs.evolve(
        fix_tok,
        chat_template=tmp_path / "t.jinja",
        add_tokens=("<end>", "<fill>"),
        eos_token="<end>",
        pad_token="<fill>",
    )
    assert tokenizer.vocabulary == Vocabulary(size=265, pad=264, bos=1, eos=263, added=2)
    (example,) = ChatProcessor(tokenizer).process({"messages": [*ROW["messages"][:1], {"role": "assistant",
                                                   "content": "say <end> twice"}]})  # fmt: skip
    assert list(example.trunk.tokens).count(263) == 2  # the two turns' own: as a special token it is text in content
    tokenizer.save(tmp_path / "saved")
    assert HFTokenizer(path=str(tmp_path / "saved")).vocabulary == attrs.evolve(tokenizer.vocabulary, added=0)


def test_the_end_of_turn_as_padding_is_still_learned(fix_tok, learned) -> None:
    tokenizer = attrs.evolve(fix_tok, pad_token="<|im_end|>")
    assert tokenizer.vocabulary.pad == 4
    assert learned(tokenizer, example_of(tokenizer)) == "ok<|im_end|>"


def test_a_padding_that_the_tokenizer_does_not_have_is_refused(fix_tok) -> None:
    with pytest.raises(ConfigError, match=r"did you mean '<pad>'\?; a new one is added by "):
        example_of(attrs.evolve(fix_tok, pad_token="<padd>"))


@pytest.mark.parametrize("tokens", [("",), ("<a>", "<a>")])
def test_tokens_to_add_are_texts_each_once(tokens) -> None:
    with pytest.raises(ValueError, match="'add_tokens' must be texts, each once"):
        HFTokenizer(path="x", add_tokens=tokens)
