"""An example as the answers that a model reads in it: each with a name made of its content.

An answer is what a path of a tree says: the trunk and one branch, or all of an example without branches.
"""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import attrs
import torch
from torch import Tensor

from ike_core.examples import AnyExample, Segment

_EMPTY = Segment((), ())


@attrs.frozen
class Answer:
    """What of a batch's targets belongs to it."""

    name: int
    """64 bits of its tokens and their weights: another template, length or text is another name."""
    shared: int
    """Targets in the trunk, which the batch holds once for all answers of the example."""
    own: int
    """Targets beyond it."""


def answers_of(example: AnyExample) -> list[Answer]:
    """In the order of the batch's targets; none where the row's weight is 0, since then nothing is supervised."""
    trunk = example.trunk
    shared = _supervised(trunk, starts=True)
    starts = not len(trunk)
    branches = example.branches or (_EMPTY,)
    return [
        Answer(name, shared, _supervised(branch, starts=starts))
        for name, branch in zip(names_of(example), branches, strict=False)
    ]


def names_of(example: AnyExample) -> list[int]:
    """The names alone, in the same order."""
    if not example.weight:
        return []
    trunk = example.trunk
    tokens, weights = array("i", trunk.tokens).tobytes(), array("f", trunk.weights).tobytes()
    return [_name(tokens, weights, branch) for branch in example.branches or (_EMPTY,)]


def taken_apart(logp_N: Tensor, examples: Sequence[AnyExample]) -> Iterator[tuple[int, Tensor]]:
    """A batch's log-probabilities as (name, those of the whole answer)."""
    place = 0
    for example in examples:
        answers = answers_of(example)
        trunk = logp_N[place : place + (answers[0].shared if answers else 0)]
        place += len(trunk)
        for answer in answers:
            yield answer.name, torch.cat([trunk, logp_N[place : place + answer.own]])
            place += answer.own


def _supervised(segment: Segment, *, starts: bool) -> int:
    """How many tokens are targets: the first of a text has nothing before it that could say it."""
    learned = sum(map(bool, segment.weights))
    return learned - bool(starts and len(segment) and segment.weights[0])


def _name(tokens: bytes, weights: bytes, branch: Segment) -> int:
    """Of all tokens, then of all their weights: where the trunk ends makes no difference."""
    made = blake2b(tokens, digest_size=8)
    for part in (array("i", branch.tokens).tobytes(), weights, array("f", branch.weights).tobytes()):
        made.update(part)
    return int.from_bytes(made.digest(), "little", signed=True)
