"""An example as the answers that a model reads in it: each with a name made of its content.

An answer is what a path of a tree says: the trunk and one branch, or all of an example without branches.
"""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain

import attrs
import torch
from torch import Tensor

from ike_core.examples import AnyExample, Segment


@attrs.frozen
class Answer:
    """What of a batch's targets belongs to it."""

    name: int
    """64 bits of its tokens and of which are supervised: another template, length or text is another name."""
    shared: int
    """Targets in the trunk, which the batch holds once for all answers of the example."""
    own: int
    """Targets beyond it."""


def answers_of(example: AnyExample) -> list[Answer]:
    """In the order of the batch's targets; none where the row's weight is 0, since then nothing is supervised."""
    if not example.weight:
        return []
    trunk, empty = example.trunk, Segment((), ())
    shared = _supervised(trunk, starts=True)
    starts = not len(trunk)
    return [
        Answer(_name(trunk, branch), shared, _supervised(branch, starts=starts))
        for branch in example.branches or (empty,)
    ]


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


def _name(trunk: Segment, branch: Segment) -> int:
    tokens = array("i", chain(trunk.tokens, branch.tokens))
    learned = bytes(map(bool, chain(trunk.weights, branch.weights)))
    made = blake2b(tokens.tobytes(), digest_size=8)
    made.update(learned)
    return int.from_bytes(made.digest(), "little", signed=True)
