"""Control tokens that were only spelt: read as text where that is exact, refused where it is not."""

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from ike_data.encoding import Encoder
from ike_data.row_error import RowError

CONTROL = {"<s>": 0, "</s>": 1}


def letters(prepend_scheme: str) -> Encoder:
    """A letter a token, and one for the space that stands before a word: before the first alone, or before all."""
    vocabulary = {token: place for place, token in enumerate([*CONTROL, *"<>/sab▁"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in CONTROL])
    return Encoder.of(tokenizer, CONTROL)


def restricted(encoder: Encoder, text: str, own: list[tuple[int, int]] | None) -> list[str | None]:
    encoded = encoder.restrict(encoder.encode([text])[0], own)
    return [encoder.backend.id_to_token(token) for token in encoded.ids]


def test_a_spelling_is_text_but_where_the_template_says_so() -> None:
    encoder = letters("never")
    assert restricted(encoder, "<s>a</s>b</s>", None) == ["<s>", "a", "</s>", "b", "</s>"]
    assert restricted(encoder, "<s>a</s>b</s>", [(0, 3), (9, 13)]) == ["<s>", "a", "<", "/", "s", ">", "b", "</s>"]


def test_characters_and_tokens_find_each_other_over_the_pieces() -> None:
    encoder = letters("never")
    text = "<s>a</s>b</s>"
    encoded = encoder.restrict(encoder.encode([text])[0], [(0, 3), (9, 13)])
    assert [encoded.holder([char]) for char in range(len(text))] == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7]
    assert [encoded.tokens.token_to_chars(token) for token in (0, 1, 2, 7)] == [(0, 3), (3, 4), (4, 5), (9, 13)]
    assert encoder.covering(encoded, (3, 13)) == (1, 8)


def test_a_tokenizer_that_reads_pieces_otherwise_than_the_whole_is_not_trusted_with_pieces() -> None:
    encoder = letters("first")  # a piece of its own would get a space that the whole does not have
    assert restricted(encoder, "<s>a</s>b", None)[0] == "<s>"
    with pytest.raises(RowError, match="this tokenizer can't read it as text there"):
        restricted(encoder, "<s>a</s>b", [(0, 3)])


def test_a_control_token_that_the_tokenizer_does_not_know_as_one_is_refused() -> None:
    encoder = letters("never")
    blind = Encoder(encoder.backend, {**CONTROL, "ab": 99})
    with pytest.raises(RowError, match="does not read the chat template's control tokens as such"):
        restricted(blind, "<s>ab", None)


def test_spaces_belong_to_the_token_that_has_them() -> None:
    tokenizer = Tokenizer(
        models.BPE(vocab={"a": 0, "b": 1, "\u0120": 2, "\u0120\u0120": 3}, merges=[("\u0120", "\u0120")])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)  # as many models ship it: spaces are nobody's
    assert tokenizer.encode("a  b").offsets == [(0, 1), (3, 3), (3, 4)]
    (encoded,) = Encoder.of(tokenizer, {}).encode(["a  b"])
    assert [encoded.holder([char]) for char in range(4)] == [0, 1, 1, 2]


def test_a_tokenizer_s_own_cut_and_padding_are_off() -> None:
    tokenizer = letters("never").backend
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    assert [len(encoded.ids) for encoded in Encoder.of(tokenizer, CONTROL).encode(["a", "abab"])] == [1, 4]
