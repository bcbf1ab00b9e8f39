"""What a data processor yields: examples, comparisons, labelled examples, and rows that are skipped."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import attrs

from ike_core.layout import Tree

Tokens = Sequence[int]
"""Token ids: `array("i")` or a view into the store, 4 bytes a token."""
Weights = Sequence[float]
"""A weight per token: `array("f")`, or a view; 0 is not learned."""


@attrs.frozen
class Segment:
    """A run of tokens with a weight each."""

    tokens: Tokens
    weights: Weights
    """As many as tokens; 0: read, not learned."""
    score: float | None = None
    """What someone gave this branch, where branches are ranked by score."""

    def __attrs_post_init__(self) -> None:
        if len(self.tokens) != len(self.weights):
            raise ValueError(f"a segment has {len(self.tokens)} tokens and {len(self.weights)} weights; give one each")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def prompt(cls, tokens: Iterable[int]) -> Self:
        """Tokens that are read only."""
        ids = array("i", tokens)
        return cls(ids, array("f", bytes(4 * len(ids))))

    @classmethod
    def answer(cls, tokens: Iterable[int], *, weight: float = 1.0, score: float | None = None) -> Self:
        """Tokens that are learned, all with the same weight."""
        ids = array("i", tokens)
        return cls(ids, array("f", [weight]) * len(ids), score)


@attrs.frozen(kw_only=True)
class _Row:
    """What all three kinds of example carry."""

    source: str = ""
    """Where the row comes from, such as `train.jsonl:17`."""
    index: int = -1
    """Place in its set: the identity that caches, ledgers and random numbers use. The store gives it."""
    weight: float = 1.0
    """Of the whole row; multiplies the weight of each token."""
    fields: Mapping[str, Any] = attrs.field(factory=dict)
    """The processor's own columns: kept through store, collate and metrics."""
    notes: tuple[str, ...] = ()
    """How the processor altered the row, such as 'spells a control token: read as text'. Each goes to the ledger, which
    counts by what comes before the first colon; the store doesn't keep them."""

    @property
    def trunk(self) -> Segment:
        raise NotImplementedError

    @property
    def branches(self) -> tuple[Segment, ...]:
        raise NotImplementedError

    @property
    def tree(self) -> Tree:
        """The shape of the row, tokens counted; the trunk counts once."""
        return Tree(len(self.trunk), tuple(len(branch) for branch in self.branches))

    def __len__(self) -> int:
        return self.tree.size

    @property
    def supervised(self) -> float:
        """Sum of token weight x row weight over the supervised tokens that have a predecessor."""
        first_has_none = float(self.trunk.weights[0]) if len(self.trunk) else 0.0
        total = sum(self.trunk.weights) - first_has_none
        for branch in self.branches:
            total += sum(branch.weights)
            if not len(self.trunk) and len(branch):
                total -= float(branch.weights[0])
        return total * self.weight


@attrs.frozen
class Example(_Row):
    """One sequence to learn from."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, tokens: Iterable[int], weights: Iterable[float], **row: Any) -> Self:
        """One segment; `row` takes source, index, weight and fields."""
        return cls((Segment(array("i", tokens), array("f", weights)),), **row)

    @property
    def trunk(self) -> Segment:
        if len(self.segments) == 1:
            return self.segments[0]
        tokens, weights = array("i"), array("f")
        for segment in self.segments:
            tokens.extend(segment.tokens)
            weights.extend(segment.weights)
        return Segment(tokens, weights)

    @property
    def branches(self) -> tuple[Segment, ...]:
        return ()


@attrs.frozen
class Comparison(_Row):
    """Several answers to one prompt: a tree. Pairs, ranked lists and groups of samples are the same tree."""

    prompt: Segment
    """The trunk: the longest common token prefix of all answers, with what comes before them. What is supervised of it
    counts to every answer."""
    answers: tuple[Segment, ...]
    """The branches; for a pair the chosen one is first."""
    margin: float = 0.0
    """By how much the first is better, where the data says so."""

    @property
    def trunk(self) -> Segment:
        return self.prompt

    @property
    def branches(self) -> tuple[Segment, ...]:
        return self.answers


@attrs.frozen
class LabelledExample(_Row):
    """One answer with a yes or a no."""

    prompt: Segment
    answer: Segment
    desirable: bool

    @property
    def trunk(self) -> Segment:
        return self.prompt

    @property
    def branches(self) -> tuple[Segment, ...]:
        return (self.answer,)


@attrs.frozen
class Skip:
    """A row that can't be used, and why; it lands in the ledger."""

    reason: str
    source: str = ""


AnyExample = Example | Comparison | LabelledExample


def preference_pair(
    prompt: Iterable[int], chosen: Iterable[int], rejected: Iterable[int], *, margin: float = 0.0, **row: Any
) -> Comparison:
    """A comparison of two answers; a prefix that both share moves to the trunk, where it stays supervised."""
    first, second = list(chosen), list(rejected)
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    read = array("i", prompt)
    weights = array("f", bytes(4 * len(read))) + array("f", [1.0]) * shared
    answers = (Segment.answer(first[shared:]), Segment.answer(second[shared:]))
    return Comparison(Segment(read + array("i", first[:shared]), weights), answers, margin=margin, **row)
