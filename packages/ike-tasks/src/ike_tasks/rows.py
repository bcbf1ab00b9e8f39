"""Segments laid end to end, and what is supervised there, as flat indices.

R rows, T tokens of a row, N supervised tokens, P paths, E examples.
"""

from array import array
from collections.abc import Mapping, Sequence
from itertools import repeat

import attrs
import torch
from torch import Tensor

from ike_core.errors import DataError
from ike_core.examples import AnyExample, Comparison, Segment

NOTHING = -1
"""In place of a flat index: no token came before."""


def _integers() -> "array[int]":
    return array("q")


def _numbers() -> "array[float]":
    return array("d")


@attrs.define
class Rows:
    """Arrays that grow while segments are laid down; then the tensors of a batch (see `ike_core.batch.Batch`)."""

    ids: "array[int]" = attrs.field(factory=_integers)
    positions: "array[int]" = attrs.field(factory=_integers)
    predictors: "array[int]" = attrs.field(factory=_integers)
    targets: "array[int]" = attrs.field(factory=_integers)
    weights: "array[float]" = attrs.field(factory=_numbers)
    token_weights: "array[float]" = attrs.field(factory=_numbers)
    paths: "array[int]" = attrs.field(factory=_integers)
    shared_targets: "array[int]" = attrs.field(factory=_integers)
    shared_paths: "array[int]" = attrs.field(factory=_integers)
    ends: "array[int]" = attrs.field(factory=_integers)

    def lay(self, segment: Segment, *, position: int, after: int, weight: float) -> int:
        """Puts a segment where the last one ended; returns the flat index of the token that what follows comes after.

        `after` is the token read just before the first one (it predicts it), NOTHING where there is none; `weight`
        the row's, 0 for a segment that is supervised elsewhere.
        """
        start = len(self.ids)
        self.ids.extend(iter(segment.tokens))  # an array of another width is taken as an iterable only
        self.positions.extend(range(position, position + len(segment)))
        learned = [place for place, token_weight in enumerate(segment.weights) if token_weight] if weight else []
        if after == NOTHING and learned[:1] == [0]:
            del learned[0]
        self.predictors.extend(start + place - 1 if place else after for place in learned)
        self.targets.extend(segment.tokens[place] for place in learned)
        self.weights.extend(segment.weights[place] * weight for place in learned)
        self.token_weights.extend(segment.weights[place] for place in learned)
        self.paths.extend(repeat(len(self.ends), len(learned)))
        return len(self.ids) - 1 if len(segment) else after

    def share(self, first: int, last: int) -> None:
        """Targets `first` to `last` - 1, of a trunk, lie on the path that comes next as well."""
        self.shared_targets.extend(range(first, last))
        self.shared_paths.extend(repeat(len(self.ends), last - first))

    def fill(self, length: int, pad: int) -> None:
        """Pads until `length` tokens lie in all."""
        missing = length - len(self.ids)
        self.ids.extend(repeat(pad, missing))
        self.positions.extend(repeat(0, missing))

    def tensors(self, rows: int, examples: Sequence[AnyExample]) -> Mapping[str, Tensor]:
        """Weights are float64: the product of two float32 needs it."""
        margins = [example.margin if isinstance(example, Comparison) else 0.0 for example in examples]
        return {
            "input_ids": _tensor(self.ids).view(rows, -1),
            "position_ids": _tensor(self.positions).view(rows, -1),
            "predictors": _tensor(self.predictors),
            "targets": _tensor(self.targets),
            "target_weights": _tensor(self.weights),
            "token_weights": _tensor(self.token_weights),
            "target_paths": _tensor(self.paths),
            "shared_targets": _tensor(self.shared_targets),
            "shared_paths": _tensor(self.shared_paths),
            "ends": _tensor(self.ends),
            "row_weights": _tensor(array("d", [example.weight for example in examples])),
            "margins": _tensor(array("d", margins)),
        }


def _tensor(values: "array[int] | array[float]") -> Tensor:
    """The array's own memory: a list of 8192 would take ten times as long."""
    dtype = torch.int64 if values.typecode == "q" else torch.float64
    return torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)


def refuse_empty(examples: Sequence[AnyExample]) -> None:
    """DataError where an example has no token: it has no end to read a score at."""
    for example in examples:
        if not len(example):
            raise DataError(f"{example.source or 'an example'} has no tokens; let its processor yield a Skip instead")
