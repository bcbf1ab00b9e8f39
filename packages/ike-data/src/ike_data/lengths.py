"""The length policy, for whatever a processor yields; and what is left must still teach something."""

import math
from array import array

import attrs

from ike_core.examples import AnyExample, Comparison, Example, Segment, Skip

NOTHING_LEFT = "no supervised token"


def fit(example: AnyExample, *, max_tokens: int, too_long: str) -> tuple[AnyExample | Skip, int]:
    """The example within `max_tokens` (0: any length), or a Skip; and how many tokens were cut off.

    `too_long` is 'skip', 'truncate_left' or 'truncate_right'. Only a single sequence is cut: of a tree no cut keeps
    what its branches have in common, so it is skipped. An example with nothing left to learn is a Skip.
    """
    size = len(example)
    if max_tokens == 0 or size <= max_tokens:
        return _teaching(example, NOTHING_LEFT), 0
    if too_long == "skip":
        return Skip(f"too long: {size} tokens, and max_tokens = {max_tokens}"), 0
    if not isinstance(example, Example):
        kind = type(example).__name__
        return Skip(f"too long: a {kind} of {size} tokens can't be cut to max_tokens = {max_tokens}"), 0
    cut = _cut(example, slice(-max_tokens, None) if too_long == "truncate_left" else slice(max_tokens))
    nothing = f"{NOTHING_LEFT} left: {size} tokens were cut to max_tokens = {max_tokens} ({too_long})"
    return _teaching(cut, nothing), size - max_tokens


def _numbers(example: AnyExample) -> list[float]:
    margin = [example.margin] if isinstance(example, Comparison) else []
    return margin + [branch.score for branch in example.branches if branch.score is not None]


def _cut(example: Example, part: slice) -> Example:
    whole = example.trunk
    segment = Segment(array("i", whole.tokens[part]), array("f", whole.weights[part]), whole.score)
    return attrs.evolve(example, segments=(segment,))


def _teaching(example: AnyExample, reason: str) -> AnyExample | Skip:
    supervised = example.supervised
    if not all(math.isfinite(number) for number in (supervised, *_numbers(example))):
        return Skip("a weight, score or margin that is not finite")
    if supervised == 0.0 or not all(any(branch.weights) for branch in example.branches):
        return Skip(reason)
    return example
