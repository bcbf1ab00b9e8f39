"""The length policy, for whatever a processor yields; and what is left must still teach something."""

import math
from array import array

import attrs

from ike_core.examples import AnyExample, Comparison, Example, Segment, Skip

NOTHING_LEFT = "no supervised token"


def fit(example: AnyExample, *, max_tokens: int, too_long: str) -> tuple[AnyExample | Skip, int]:
    """The example within `max_tokens` (0: any length), or a Skip; and how many of its tokens are not used.

    `too_long` is 'skip', 'truncate_left' or 'truncate_right'. Only a single sequence is cut: of a tree no cut keeps
    what its branches have in common, so it is skipped. An example with nothing left to learn is a Skip.
    """
    size = len(example)
    if max_tokens == 0 or size <= max_tokens:
        return _teaching(example, size, unused=0, reason=NOTHING_LEFT)
    if too_long == "skip":
        return Skip(f"too long: {size} tokens, and max_tokens = {max_tokens}"), size
    if not isinstance(example, Example):
        kind = type(example).__name__
        return Skip(f"too long: a {kind} of {size} tokens can't be cut to max_tokens = {max_tokens}"), size
    cut = _cut(example, slice(-max_tokens, None) if too_long == "truncate_left" else slice(max_tokens))
    nothing = f"{NOTHING_LEFT} left: {size} tokens were cut to max_tokens = {max_tokens} ({too_long})"
    return _teaching(cut, size, unused=size - max_tokens, reason=nothing)


def _numbers(example: AnyExample) -> list[float]:
    margin = [example.margin] if isinstance(example, Comparison) else []
    return margin + [branch.score for branch in example.branches if branch.score is not None]


def _cut(example: Example, part: slice) -> Example:
    whole = example.trunk
    segment = Segment(array("i", whole.tokens[part]), array("f", whole.weights[part]), whole.score)
    return attrs.evolve(example, segments=(segment,))


def _teaching(example: AnyExample, size: int, *, unused: int, reason: str) -> tuple[AnyExample | Skip, int]:
    supervised = example.supervised
    if not all(math.isfinite(number) for number in (supervised, *_numbers(example))):
        return Skip("a weight, score or margin that is not finite"), size
    lowest = min((min(segment.weights, default=0.0) for segment in (example.trunk, *example.branches)), default=0.0)
    if min(lowest, example.weight) < 0:  # divided by a sum that is negative too, it would be learned towards
        return Skip(f"a negative weight: {min(lowest, example.weight):g}; weights are 0 or more"), size
    if supervised == 0.0 or not all(any(branch.weights) for branch in example.branches):
        return Skip(reason), size
    return example, unused
