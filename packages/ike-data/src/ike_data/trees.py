"""Several answers to one prompt as a tree: what all begin with is the trunk, what is their own the branches."""

from collections.abc import Sequence

from ike_core.examples import Segment
from ike_data.row_error import RowError


def grow(answers: Sequence[Segment]) -> tuple[Segment, tuple[Segment, ...]]:
    """Trunk and branches of whole sequences.

    The trunk is the longest prefix that all share, tokens and what is supervised of them, but a branch keeps its last
    supervised token at least. Raises RowError where all are the same.
    """
    if all(answer.tokens == answers[0].tokens for answer in answers[1:]):
        raise RowError("the answers are the same: there is nothing to compare")
    shared = min(_last_supervised(answer) for answer in answers)
    for answer in answers[1:]:
        shared = _common(answers[0], answer, at_most=shared)
    trunk = Segment(answers[0].tokens[:shared], answers[0].weights[:shared])
    return trunk, tuple(Segment(answer.tokens[shared:], answer.weights[shared:]) for answer in answers)


def _last_supervised(answer: Segment) -> int:
    return max((place for place, weight in enumerate(answer.weights) if weight), default=len(answer))


def _common(one: Segment, other: Segment, *, at_most: int) -> int:
    return min(_alike(one.tokens, other.tokens, at_most), _alike(one.weights, other.weights, at_most))


def _alike(one: Sequence[float], other: Sequence[float], at_most: int) -> int:
    """How many of the first `at_most` are equal."""
    if one[:at_most] == other[:at_most]:
        return at_most
    return next(place for place in range(at_most) if one[place] != other[place])
