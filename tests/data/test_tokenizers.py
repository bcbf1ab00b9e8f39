"""A model's tokenizer by its folder: cheap to make, saved as transformers reads it, refused with what was tried."""

import os
import pickle
import subprocess
import sys

import pytest

from ike_core import ConfigError, Tokenizer
from ike_core.interfaces import ChatTokenizer
from ike_data import ChatProcessor, HFTokenizer


def test_it_is_a_tokenizer_of_the_interfaces(fix_tok) -> None:
    assert isinstance(fix_tok, Tokenizer)
    assert isinstance(fix_tok, ChatTokenizer)


def test_text_to_ids_and_back(saved) -> None:
    tokenizer = saved(adds_bos=True)
    assert tokenizer.encode("<bos>h", special_tokens=False)[0] == 1
    assert tokenizer.encode("h", special_tokens=True) == [1, *tokenizer.encode("h")]
    assert tokenizer.decode(tokenizer.encode("héh \n\n🤷<|im_end|>")) == "héh \n\n🤷<|im_end|>"
    assert (tokenizer.vocabulary.pad, tokenizer.vocabulary.bos, tokenizer.vocabulary.eos) == (0, 1, 2)
    assert tokenizer.vocabulary.size == 5 + 256 + 2


def test_padding_falls_back_to_the_eos(saved) -> None:
    assert saved(pad_token=None).vocabulary.pad == 2


def test_a_saved_tokenizer_is_the_same_for_transformers(saved, template, tmp_path) -> None:
    from transformers import AutoTokenizer

    tokenizer = saved(chat=template(), adds_bos=True)
    tokenizer.save(tmp_path / "out")
    again = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    text = "hi hi\n\n<|im_end|>"
    assert again(text).input_ids == tokenizer.encode(text, special_tokens=True)
    messages = [{"role": "user", "content": "Hi"}]
    prompt = again.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert prompt == tokenizer.decode(tokenizer.chat_prompt(messages)).removeprefix("<bos>")


def test_a_folder_without_tokenizer_and_a_path_without_folder_say_what_was_tried(tmp_path) -> None:
    with pytest.raises(ConfigError, match=rf"no tokenizer: the folder {tmp_path} holds none that transformers reads"):
        HFTokenizer(path=str(tmp_path)).encode("x")
    with pytest.raises(ConfigError, match=rf"{tmp_path}/a/b/c does not exist, and it is no name on the hub"):
        HFTokenizer(path=str(tmp_path / "a/b/c")).encode("x")


def test_a_hub_name_without_the_hub_shows_both_things_tried(tmp_path) -> None:
    code = "from ike_data import HFTokenizer; HFTokenizer(path='nobody/nothing').encode('x')"
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")},
    )
    last = child.stderr.strip().splitlines()[-1]
    assert child.returncode == 1
    assert f"there is no folder {tmp_path}/nobody/nothing, and 'nobody/nothing' could not be had from the hub" in last


def test_a_processor_travels_to_another_process_before_and_after_its_first_use(fix_tok) -> None:
    processor = ChatProcessor(fix_tok)
    record = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ok"}]}
    before = pickle.loads(pickle.dumps(processor))
    (example,) = processor.process(record)
    after = pickle.dumps(processor)
    assert len(after) < 1000  # the path, not the tokenizer
    assert list(before.process(record)) == list(pickle.loads(after).process(record)) == [example]


def test_making_one_reads_nothing() -> None:
    code = "import sys, ike_data; ike_data.HFTokenizer('x'); print({'torch', 'transformers'} & {*sys.modules})"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == "set()\n"
