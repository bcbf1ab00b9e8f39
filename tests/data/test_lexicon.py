"""A text's tokens are those of its words: as the tokenizers library has them for the whole, token by token."""

from itertools import accumulate
from typing import Any
from unicodedata import category

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from ike_data.lexicon import _CUT, Lexicon

PIECES = st.sampled_from(
    [
        *(
            "a",
            "the",
            "Hello",
            "don't",
            "I'LL",
            "é",
            "e\u0301",
            "\u0301",
            "ñ",
            "日本語",
            "д",
            "한",
            "🤷🏽",
            "1",
            "1234",
            "½",
        ),
        *(" ", " ", " ", "  ", "   ", "\n", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2028", "\x1c", "\x85", "\u180e"),
        *(".", ",", "...", "!=", "'", "'s", "_", "<|im_end|>", "<|im_start|>", "<think>", "</think>", "<|im_", "end|>"),
    ]
)
TEXT = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=12))
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def byte_level(*, merges: int = 0, **byte_level_options: bool) -> Tokenizer:
    """As GPT-2's: pairs of letters and a space are merged, also with a line break, were they ever in one word."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ġ", "h"), ("h", "e"), ("l", "l"), ("Ċ", "Ċ"), ("Ġ", "Ġ"), ("a", "Ġ"), ("a", "Ċ"), ("Ċ", "H"), (".", "Ċ")]
    vocabulary = {token: place for place, token in enumerate([*alphabet, *map("".join, pairs)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **byte_level_options})
    return tokenizer


def check(lexicon: Lexicon, text: str) -> None:
    """Ids, and the way between characters and tokens, are those of the tokenizer itself."""
    whole = lexicon.backend.encode(text, add_special_tokens=False)
    (words,) = lexicon.encode([text])
    assert words.ids == whole.ids
    assert [words.char_to_token(char) for char in range(len(text) + 1)] == [
        whole.char_to_token(char) for char in range(len(text) + 1)
    ]
    assert [words.token_to_chars(token) for token in range(len(whole.ids))] == [
        whole.token_to_chars(token) for token in range(len(whole.ids))
    ]


@QUICK
@given(TEXT)
def test_the_words_of_gpt_2_s_expression(text) -> None:
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    check(Lexicon.of(tokenizer), text)


@pytest.mark.parametrize("name", ["qwen3", "pythia-160m"])
def test_the_words_of_real_tokenizers(shared_data, name) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / name / "tokenizer.json"))
    tokenizer.post_processor = None  # pythia's trims white space off the offsets
    lexicon = Lexicon.of(tokenizer)

    @QUICK
    @given(TEXT)
    def holds(text: str) -> None:
        check(lexicon, text)

    holds()


@pytest.mark.parametrize("name", ["", "qwen3"])
def test_whatever_character_a_cut_follows_the_tokenizer_splits_there(request, name) -> None:
    """Of what may be white space to one and not to the other; all of Unicode was looked at when this was written."""
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name:
        file = request.getfixturevalue("shared_data") / "tokenizers" / name / "tokenizer.json"
        pre_tokenizer = Tokenizer.from_file(str(file)).pre_tokenizer
    odd = [chr(code) for code in range(0x3001) if category(chr(code))[0] in "ZCM" or code < 0x100]
    text = "".join(f"q{character}{tail}|z|" for character in odd for tail in (" b", "\nb", "  b", " \u0301"))
    words = _CUT.split(text)
    assert len(words) > len(odd)
    assert set(accumulate(map(len, words[:-1]))) <= {start for _, (start, _) in pre_tokenizer.pre_tokenize_str(text)}


def test_a_word_is_encoded_once(monkeypatch) -> None:
    lexicon = Lexicon.of(byte_level())
    lexicon.encode(["he said he did", "he did"])
    assert set(lexicon.known) == {"he", " said", " he", " did"}
    monkeypatch.setattr(lexicon, "backend", None)
    assert lexicon.encode(["he did"])[0].words == ["he", " did"]


def test_words_are_forgotten_when_there_are_too_many(monkeypatch) -> None:
    monkeypatch.setattr("ike_data.lexicon.KEPT_CHARACTERS", 10)
    lexicon = Lexicon.of(byte_level())
    for text in ("one two three", "four", "one"):
        check(lexicon, text)
    assert set(lexicon.known) == {"four", "one"}


def normalized(normalizer: Any) -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizer
    return tokenizer


def having(token: AddedToken) -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_tokens([token])
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        byte_level(use_regex=False),
        byte_level(add_prefix_space=True),
        normalized(normalizers.Lowercase()),
        having(AddedToken("<x>", rstrip=True, normalized=False)),
        having(AddedToken("<x>", single_word=True, normalized=False)),
        having(AddedToken("New York", normalized=True)),
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")),
    ],
    ids=["no splits", "prefix", "normalizer", "strips", "single word", "words in a token", "no BPE"],
)
def test_a_tokenizer_whose_words_can_t_be_told_has_no_lexicon(tokenizer) -> None:
    assert Lexicon.of(tokenizer) is None
