"""Tokens as people can read them: the text that each gives where it stands, with what can't be seen spelt out."""

from collections.abc import Callable, Iterator, Sequence

import attrs

from ike_core.examples import Segment
from ike_core.interfaces import Tokenizer
from ike_data.tokenizers import OffsetTokenizer

LONGEST = 8
"""Tokens that one character may be cut into; more are byte rubbish, and shown one by one."""
_UNFINISHED = "\ufffd"
"""What decoders give for bytes that are no whole character."""

Decode = Callable[[Sequence[int]], str]


@attrs.frozen
class Piece:
    """One token; or, where a character is cut over several, those."""

    text: str
    """Escaped as Python does, but for a newline, which also stands as itself behind its escape."""
    tokens: tuple[int, ...]
    weight: float
    """0: read, not learned."""
    is_control: bool
    """A control token, not text that only spells one."""


def pieces(segment: Segment, tokenizer: Tokenizer) -> list[Piece]:
    """All of a segment, in order."""
    control = frozenset(tokenizer.encoder.control.values() if isinstance(tokenizer, OffsetTokenizer) else ())
    tokens, weights = list(segment.tokens), list(segment.weights)
    found = []
    for start, end, text in _decoded(tokens, weights, tokenizer.decode):
        is_control = end - start == 1 and tokens[start] in control
        found.append(Piece(visible(text), tuple(tokens[start:end]), float(weights[start]), is_control))
    return found


def _decoded(tokens: Sequence[int], weights: Sequence[float], decode: Decode) -> Iterator[tuple[int, int, str]]:
    """(first token, end, text). Each is decoded behind the one before it: some decoders drop a space at the start."""
    before, start = 0, 0
    while start < len(tokens):
        end, text = _next(tokens, weights, before, start, decode)
        yield start, end, text
        before, start = start, end


def _next(tokens: Sequence[int], weights: Sequence[float], before: int, start: int, decode: Decode) -> tuple[int, str]:
    known = decode(tokens[before:start])
    for end in range(start + 1, min(start + LONGEST, len(tokens)) + 1):
        if weights[end - 1] != weights[start]:
            break
        text = decode(tokens[before:end])
        text = text[len(known) :] if text.startswith(known) else decode(tokens[start:end])
        if not text.endswith(_UNFINISHED):
            return end, text
    return start + 1, _UNFINISHED


def visible(text: str) -> str:
    """Nothing that moves the cursor, hides or turns text is left as it is."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character == "\n":
        return "\\n\n"
    return character if character.isprintable() else character.encode("unicode_escape").decode()
