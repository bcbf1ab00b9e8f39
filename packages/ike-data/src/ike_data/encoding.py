"""Text to tokens, with the way back to characters, and without control tokens that were only spelt.

A control token is one that the model is steered by: end of turn, begin of text. Where a row's own text spells one, it
is read as the characters that it is.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, Self

import attrs

from ike_data.lexicon import Lexicon
from ike_data.row_error import RowError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

Span = tuple[int, int]
"""[start, end) in characters."""


class Tokens(Protocol):
    """What is asked of a `tokenizers.Encoding`."""

    @property
    def ids(self) -> list[int]: ...

    def char_to_token(self, char_pos: int, /) -> int | None:
        """The first token that holds the character."""
        ...

    def token_to_chars(self, token_index: int, /) -> Span | None: ...


@attrs.frozen
class Encoded:
    """A text and its tokens."""

    text: str
    tokens: Tokens

    @cached_property
    def ids(self) -> list[int]:
        return self.tokens.ids

    def holder(self, chars: Iterable[int]) -> int | None:
        """The first token of the first of these characters that any token holds; a normalizer may have dropped some."""
        return next((token for char in chars if (token := self.tokens.char_to_token(char)) is not None), None)


@attrs.frozen(eq=False)
class Encoder:
    """A fast tokenizer that adds nothing around a text, cuts nothing and pads nothing."""

    backend: "Backend"
    control: Mapping[str, int]
    """Spelling -> id of every control token; the token for unknown text is none."""
    lexicon: Lexicon | None = None
    """Encodes as the backend does, where that goes word by word."""

    @classmethod
    def of(cls, backend: "Backend", control: Mapping[str, int]) -> Self:
        """Of a copy: the post-processor goes (it adds tokens, and trims white space off the offsets)."""
        copy = type(backend).from_str(backend.to_str())
        copy.post_processor = None
        copy.no_truncation()
        copy.no_padding()
        return cls(copy, control, Lexicon.of(copy))

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """In one call, on the tokenizer's own threads. What spells a control token is one."""
        encodings: Sequence[Tokens] = (
            self.lexicon.encode(texts) if self.lexicon else self.backend.encode_batch(texts, add_special_tokens=False)
        )
        return [Encoded(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]

    def encode_plain(self, text: str) -> Encoded:
        """What spells a control token is text."""
        return Encoded(text, self._plain.encode(text, add_special_tokens=False))

    def restrict(self, encoded: Encoded, own: Sequence[Span] | None) -> Encoded:
        """Control tokens only at the spans `own`, each of which spells one; elsewhere their spelling is text.

        None: every spelling is one. Raises RowError where that can't be had exactly.
        """
        text = encoded.text
        spellings = [match.span() for match in self.pattern.finditer(text)]
        if own is None:
            if self._count_control(encoded) != len(spellings):
                raise RowError("the tokenizer does not read the chat template's control tokens as such")
            return encoded
        if not own:
            return self.encode_plain(text) if spellings else encoded
        # The text is cut at its control tokens and encoded in pieces, which some tokenizers don't read as they read the
        # whole. So the same is done with every spelling taken as a control token, and must give what the whole gave.
        restricted = self._in_pieces(text, own)
        if self._in_pieces(text, spellings).ids != encoded.ids or self._count_control(restricted) != len(own):
            raise RowError("spells a control token: and this tokenizer can't read it as text there")
        return restricted

    def spells_control(self, text: str) -> bool:
        """Whether a control token is spelt in a text."""
        return self.pattern.search(text) is not None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches a control token, the longest first; nothing where there are none."""
        longest_first = sorted(self.control, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def covering(self, encoded: Encoded, span: Span) -> tuple[int, int]:
        """[first, end) of the tokens that hold characters of a span, which ends with a control token or white space.

        A control token that takes white space behind it is where its spelling is. Raises RowError where there is none.
        """
        start, end = span
        first = encoded.holder(range(start, end))
        last = encoded.holder(range(end - 1, start - 1, -1))
        if first is None or last is None:
            raise RowError("the tokenizer makes nothing of what is to be learned")
        if encoded.ids[first] in self._control_ids:
            first_char = (encoded.tokens.token_to_chars(first) or span)[0]
            spelling = self.pattern.search(encoded.text, first_char)
            first += spelling is not None and spelling.start() < start
        return first, last + 1

    def _count_control(self, encoded: Encoded) -> int:
        return sum(map(self._control_ids.__contains__, encoded.ids))

    def _in_pieces(self, text: str, own: Sequence[Span]) -> Encoded:
        pieces: list[tuple[int, Tokens]] = []
        position = 0
        for start, end in [*own, (len(text), len(text))]:
            if position < start:
                pieces.append((position, self._plain.encode(text[position:start], add_special_tokens=False)))
            if start < end:
                pieces.append((start, _Single(self.control[text[start:end]], end - start)))
            position = end
        return Encoded(text, _Joined(tuple(pieces)))

    @cached_property
    def _plain(self) -> "Backend":
        copy = type(self.backend).from_str(self.backend.to_str())  # the setting below is not part of the string
        copy.encode_special_tokens = True
        return copy

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.control.values())


@attrs.frozen
class _Single:
    """One token."""

    token: int
    length: int

    @property
    def ids(self) -> list[int]:
        return [self.token]

    def char_to_token(self, char_pos: int, /) -> int | None:
        return 0 if 0 <= char_pos < self.length else None

    def token_to_chars(self, token_index: int, /) -> Span | None:
        return (0, self.length) if token_index == 0 else None


@attrs.frozen
class _Joined:
    """Pieces of a text, laid end to end: (first character, tokens) each."""

    pieces: tuple[tuple[int, Tokens], ...]

    @cached_property
    def ids(self) -> list[int]:
        return [token for _, piece in self.pieces for token in piece.ids]

    def char_to_token(self, char_pos: int, /) -> int | None:
        number = bisect_right(self.pieces, char_pos, key=lambda piece: piece[0]) - 1
        if number < 0:
            return None
        start, piece = self.pieces[number]
        token = piece.char_to_token(char_pos - start)
        return None if token is None else token + self._firsts[number]

    def token_to_chars(self, token_index: int, /) -> Span | None:
        number = bisect_right(self._firsts, token_index) - 1
        start, piece = self.pieces[number]
        chars = piece.token_to_chars(token_index - self._firsts[number])
        return None if chars is None else (chars[0] + start, chars[1] + start)

    @cached_property
    def _firsts(self) -> list[int]:
        return list(accumulate((len(piece.ids) for _, piece in self.pieces), initial=0))[:-1]
