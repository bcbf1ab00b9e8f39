"""What is shown of a row: facts and pieces, whatever they are shown on."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ike_core.examples import AnyExample, Comparison, Example, LabelledExample, Segment
from ike_core.interfaces import Tokenizer
from ike_data.commands.pieces import Piece, pieces
from ike_data.outcomes import Outcome


@attrs.frozen
class PartView:
    """One segment of an example."""

    title: str
    tokens: int
    learned: int
    """Tokens with a weight."""
    pieces: tuple[Piece, ...]


@attrs.frozen(kw_only=True)
class ExampleView:
    """One example."""

    source: str
    kind: str
    tokens: int
    learned: int
    weight: float
    """Of the row."""
    fields: Mapping[str, Any]
    parts: tuple[PartView, ...]

    @property
    def facts(self) -> str:
        """`Example, 64 tokens, 12 learned, row weight 0.5`"""
        weight = "" if self.weight == 1.0 else f", row weight {self.weight:g}"
        return f"{self.kind}, {self.tokens:,} tokens, {self.learned:,} learned{weight}"


@attrs.frozen
class RowView:
    """What became of one row."""

    source: str
    examples: tuple[ExampleView, ...]
    remarks: tuple[str, ...]
    """`skipped: empty response`: what the ledger would say."""


def view(outcome: Outcome, tokenizer: Tokenizer) -> RowView:
    """A row's outcome, decoded."""
    remarks = tuple(f"{entry.kind}: {entry.reason}" for entry in outcome.entries)
    return RowView(outcome.source, tuple(_example(example, tokenizer) for example in outcome.examples), remarks)


def _example(example: AnyExample, tokenizer: Tokenizer) -> ExampleView:
    parts = tuple(_part(title, segment, tokenizer) for title, segment in _segments(example))
    return ExampleView(
        source=example.source,
        kind=_kind(example),
        tokens=len(example),
        learned=sum(part.learned for part in parts),
        weight=example.weight,
        fields=example.fields,
        parts=parts,
    )


def _kind(example: AnyExample) -> str:
    if isinstance(example, Comparison):
        return f"Comparison of {len(example.answers)}" + (f", margin {example.margin:g}" if example.margin else "")
    if isinstance(example, LabelledExample):
        return f"LabelledExample, {'desirable' if example.desirable else 'undesirable'}"
    return "Example"


def _segments(example: AnyExample) -> Iterator[tuple[str, Segment]]:
    if isinstance(example, Example):
        count = len(example.segments)
        for number, segment in enumerate(example.segments, 1):
            yield (f"segment {number} of {count}" if count > 1 else ""), segment
        return
    yield "prompt", example.trunk
    count = len(example.branches)
    for number, branch in enumerate(example.branches, 1):
        score = "" if branch.score is None else f", score {branch.score:g}"
        yield (f"answer {number} of {count}" if count > 1 else "answer") + score, branch


def _part(title: str, segment: Segment, tokenizer: Tokenizer) -> PartView:
    learned = sum(map(bool, segment.weights))
    return PartView(title, len(segment), learned, tuple(pieces(segment, tokenizer)))
