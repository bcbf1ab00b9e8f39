"""Raw text: all of it is learned once, whole or in windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core import Skip
from ike_data import HFTokenizer, TextProcessor

EOS = 2


def test_a_text_is_learned_with_its_eos(fix_tok, learned) -> None:
    (example,) = TextProcessor(fix_tok).process({"text": "abc"})
    assert fix_tok.decode(example.trunk.tokens) == "abc<eos>"
    assert learned(fix_tok, example) == "bc<eos>"  # nothing stands before "a"


def test_bos_is_read_where_the_tokenizer_adds_it(saved, learned) -> None:
    tokenizer = saved(adds_bos=True)
    (example,) = TextProcessor(tokenizer).process({"text": "abc"})
    assert tokenizer.decode(example.trunk.tokens) == "<bos>abc<eos>"
    assert learned(tokenizer, example) == "abc<eos>"


def test_windows_overlap_and_every_token_is_learned_once(fix_tok) -> None:
    windows = list(TextProcessor(fix_tok, window=5, overlap=2).process({"text": "abcdefghij"}))
    shown = [fix_tok.decode(example.trunk.tokens) for example in windows]
    assert shown == ["abcde", "defgh", "ghij<eos>"]  # the eleventh token is the eos
    assert [list(example.trunk.weights) for example in windows] == [
        [0, 1, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1],
    ]


@given(length=st.integers(1, 60), window=st.integers(2, 20), overlap=st.integers(1, 19))
def test_tokens_in_are_tokens_learned_and_the_first(length, window, overlap) -> None:
    if overlap >= window:
        with pytest.raises(ValueError, match="leaves nothing new in a window"):
            TextProcessor(None, window=window, overlap=overlap)
        return
    tokens = list(range(length))
    parts = list(TextProcessor(None, window=window, overlap=overlap)._windows(tokens))
    learned = [token for part in parts for token, weight in zip(part.tokens, part.weights, strict=True) if weight]
    assert [tokens[0], *learned] == tokens
    assert all(len(part) <= window for part in parts)
    assert sum(map(len, parts)) == length + overlap * (len(parts) - 1)


def test_windows_of_a_file_account_for_every_token(fix_tok, write, read) -> None:
    file = write("a.jsonl", [{"content": "x" * 37, "id": 1}, {"content": "y" * 4, "id": 2}])
    processor = TextProcessor(fix_tok, window=10, columns={"text": "content"}, fields=("id",))
    kept = read(file, processor, max_tokens=10).kept
    assert [(kept[place].source, kept[place].fields["id"]) for place in range(len(kept))] == [
        ("a.jsonl:1", 1),  # 38 tokens: 10, then 9 new ones a window
        ("a.jsonl:1", 1),
        ("a.jsonl:1", 1),
        ("a.jsonl:1", 1),
        ("a.jsonl:1", 1),
        ("a.jsonl:2", 2),
    ]
    assert sum(kept.weights(place)["tokens"] for place in range(len(kept))) == 37 + 4


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"body": "x"}, "no column 'text': the row has 'body'"),
        ({"text": None}, "column 'text' is not text: it holds null"),
        ({"text": " \n"}, "empty text"),
    ],
)
def test_a_row_without_text_says_so(fix_tok, row, reason) -> None:
    assert list(TextProcessor(fix_tok).process(row)) == [Skip(reason)]


@pytest.mark.parametrize(
    ("special", "count", "notes"),
    [
        ("text", 1, ("spells a control token: read as text",)),
        ("allow", 2, ("spells a control token: taken as one",)),
    ],
)
def test_a_text_that_spells_an_eos(fix_tok, special, count, notes) -> None:
    (example,) = TextProcessor(fix_tok, special_in_content=special).process({"text": "a<eos>b"})
    assert list(example.trunk.tokens).count(EOS) == count
    assert example.notes == notes


def test_a_text_that_spells_an_eos_can_be_skipped(fix_tok) -> None:
    (item,) = TextProcessor(fix_tok, special_in_content="skip").process({"text": "a<eos>b"})
    assert item == Skip("spells a control token: and special_in_content = 'skip'")


def test_a_base_model_s_tokenizer_needs_no_template(shared_data) -> None:
    tokenizer = HFTokenizer(path=str(shared_data / "tokenizers/pythia-160m"))
    (example,) = TextProcessor(tokenizer).process({"text": "Once upon a time"})
    assert tokenizer.decode(example.trunk.tokens) == "Once upon a time<|endoftext|>"
