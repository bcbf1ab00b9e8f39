"""Words and their tokens: most words of a text were met before, and need not be encoded again.

A byte-level tokenizer splits a text by a regular expression before it looks for tokens, and no token crosses a split.
Some of the splits can be told without that expression, in those that are known (`PATTERNS`):

- before a space that follows no white space: none of them matches a space behind anything else;
- before a letter that follows one line break, which follows no white space: white space and letters match apart, and
  a single character of white space matches alike whatever follows it;
- on both sides of an added token, which is found before all else.

So a text in words, cut there, has the tokens of its words, and those the tokenizer itself has made.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Self

import attrs
import orjson

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from ike_data.encoding import Span, Tokens

PATTERNS = frozenset(
    {
        # GPT-4's, Llama 3's: digits by three. Qwen 2's and 3's: one by one.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
)
"""GPT-2's, which `tokenizers` has built in, is one of them too."""
_CUT = re.compile("(?<=[^\\s\u180e])(?= )|(?<=[^\\s\u180e]\n)(?=[A-Za-z])")  # U+180E is white space to older Unicode
KEPT_CHARACTERS = 1 << 23
"""Of words, together; beyond, they are forgotten."""


@attrs.define(eq=False)
class Lexicon:
    """The words that one tokenizer has encoded."""

    backend: "Backend"
    added: re.Pattern[str]
    """Matches an added token, in a group of its own."""
    known: dict[str, tuple[int, ...]] = attrs.field(factory=dict)
    """Word -> tokens."""
    characters: int = 0
    """Of the words that are known."""

    @classmethod
    def of(cls, backend: "Backend") -> "Self | None":
        """None where a text's tokens may not be those of its words, or that is not known."""
        facts = orjson.loads(backend.to_str())
        first = [token for token in facts["added_tokens"] if not token["normalized"]]
        later = [token for token in facts["added_tokens"] if token["normalized"]]
        if not (_is_plain(facts["model"]) and _keeps_words(facts["normalizer"]) and _splits(facts["pre_tokenizer"])):
            return None
        if any(token["rstrip"] or token["lstrip"] or token["single_word"] for token in facts["added_tokens"]):
            return None
        if any(_CUT.search(f"x{token['content']}", 2) for token in later):
            return None
        longest_first = sorted((token["content"] for token in first), key=len, reverse=True)
        return cls(backend, re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})"))

    def encode(self, texts: Sequence[str]) -> "list[Words]":
        """Texts with the tokens that the tokenizer gives them."""
        cut = [self._words(text) for text in texts]
        self._learn(set().union(*cut))
        tokens = self.known.__getitem__
        return [Words(self, words, list(map(tokens, words))) for words in cut]

    def _words(self, text: str) -> list[str]:
        words: list[str] = []
        for place, piece in enumerate(self.added.split(text)):
            if place % 2:
                words.append(piece)
            elif piece:
                words += _CUT.split(piece)
        return words

    def _learn(self, words: set[str]) -> None:
        if self.characters > KEPT_CHARACTERS:
            self.known.clear()
            self.characters = 0
        new = list(words.difference(self.known))
        encodings = self.backend.encode_batch(new, add_special_tokens=False) if new else []
        for word, encoding in zip(new, encodings, strict=True):
            self.known[word] = tuple(encoding.ids)
            self.characters += len(word)


@attrs.frozen(eq=False)
class Words:
    """A text in words; see `ike_data.encoding.Tokens`."""

    lexicon: Lexicon
    words: Sequence[str]
    tokens: Sequence[tuple[int, ...]]
    """Of each word."""

    @cached_property
    def ids(self) -> list[int]:
        return list(chain.from_iterable(self.tokens))

    def char_to_token(self, char_pos: int, /) -> int | None:
        number = bisect_right(self._first_chars, char_pos) - 1
        if not 0 <= number < len(self.words):
            return None
        place, word = char_pos - self._first_chars[number], self.words[number]
        is_first = not place or (len(self.tokens[number]) == 1 and word.isascii())  # others may be composed, or dropped
        token = 0 if is_first else self._within(number).char_to_token(place)
        return None if token is None else self._first_tokens[number] + token

    def token_to_chars(self, token_index: int, /) -> "Span | None":
        number = bisect_right(self._first_tokens, token_index) - 1
        if not 0 <= number < len(self.words):
            return None
        chars = self._within(number).token_to_chars(token_index - self._first_tokens[number])
        return chars and (chars[0] + self._first_chars[number], chars[1] + self._first_chars[number])

    def _within(self, number: int) -> "Tokens":
        return self.lexicon.backend.encode(self.words[number], add_special_tokens=False)

    @cached_property
    def _first_chars(self) -> list[int]:
        return list(accumulate(map(len, self.words), initial=0))

    @cached_property
    def _first_tokens(self) -> list[int]:
        return list(accumulate(map(len, self.tokens), initial=0))


def _is_plain(model: Mapping[str, Any]) -> bool:
    return bool(model["type"] == "BPE" and not model["dropout"])


def _keeps_words(normalizer: Mapping[str, Any] | None) -> bool:
    """Composing characters goes across no cut: neither a space nor a letter composes with what is before it."""
    return normalizer is None or normalizer["type"] == "NFC"


def _splits(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    """Whether one of its parts splits a text wherever it is cut, and none looks across."""
    parts = [] if pre_tokenizer is None else pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    return all(map(_is_known, parts)) and any(part["type"] == "Split" or part.get("use_regex") for part in parts)


def _is_known(part: Mapping[str, Any]) -> bool:
    match part["type"]:
        case "ByteLevel":
            return not part["add_prefix_space"]
        case "Split":
            known = part["pattern"].get("Regex") in PATTERNS
            return known and part["behavior"] == "Isolated" and not part["invert"]
        case kind:
            return bool(kind == "Digits")
