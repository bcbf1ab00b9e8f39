"""Texts with the characters of them that are to be learned, and what the tokenizer makes of them."""

from array import array
from collections.abc import Callable, Iterator, Sequence

import attrs

from ike_core.errors import ConfigError
from ike_core.examples import AnyExample, Segment, Skip
from ike_data.encoding import Encoded, Span
from ike_data.prompts import opening_before
from ike_data.row_error import RowError
from ike_data.tokenizers import OffsetTokenizer


@attrs.frozen
class Draft:
    """A text that is yet to be encoded."""

    text: str
    learned: tuple[tuple[Span, float], ...]
    """Which characters, with the weight of their tokens. Each span ends with a control token, white space or the text.
    A token that holds characters of both sides of a border is learned."""
    own: tuple[Span, ...] | None = None
    """The only places that may be control tokens; None: all that spell one."""
    ends: bool = False
    """Whether the eos follows, learned like the last span."""
    notes: tuple[str, ...] = ()
    """What was altered, for the ledger."""


@attrs.frozen
class Plan:
    """What becomes of one row."""

    drafts: tuple[Draft, ...]
    build: Callable[[Sequence[Segment]], Sequence[AnyExample]]
    """From a segment a draft. Raises RowError."""


def carry_out(plans: Sequence[Plan | Skip], tokenizer: OffsetTokenizer) -> list[list[AnyExample | Skip]]:
    """What each row gives; all drafts are encoded in one call."""
    drafts = [draft for plan in plans if isinstance(plan, Plan) for draft in plan.drafts]
    encoded = iter(tokenizer.encoder.encode([draft.text for draft in drafts]))
    return [_carried_out(plan, encoded, tokenizer) for plan in plans]


def _carried_out(plan: Plan | Skip, encoded: Iterator[Encoded], tokenizer: OffsetTokenizer) -> list[AnyExample | Skip]:
    if isinstance(plan, Skip):
        return [plan]
    texts = [next(encoded) for _ in plan.drafts]
    try:
        return [*plan.build([segment(draft, text, tokenizer) for draft, text in zip(plan.drafts, texts, strict=True)])]
    except RowError as reason:
        return [Skip(str(reason))]


def segment(draft: Draft, encoded: Encoded, tokenizer: OffsetTokenizer) -> Segment:
    """The tokens of a draft with their weights, bos before them if the tokenizer adds it. Raises RowError."""
    encoder = tokenizer.encoder
    encoded = encoder.restrict(encoded, draft.own)
    opening = opening_before(encoded.ids, tokenizer.opening)
    tokens = array("i", [*opening, *encoded.ids])
    if draft.ends:
        tokens.append(eos_of(tokenizer))
    weights = array("f", bytes(4 * len(tokens)))
    for span, weight in draft.learned:
        first, end = encoder.covering(encoded, span)
        if span[1] == len(encoded.text):
            end = len(tokens) - len(opening)
        weights[len(opening) + first : len(opening) + end] = array("f", [weight]) * (end - first)
    return Segment(tokens, weights)


def eos_of(tokenizer: OffsetTokenizer) -> int:
    """ConfigError where the tokenizer has none."""
    eos = tokenizer.vocabulary.eos
    if eos is None:
        raise ConfigError("the tokenizer has no eos token, so a response would never be taught to end")
    return eos
