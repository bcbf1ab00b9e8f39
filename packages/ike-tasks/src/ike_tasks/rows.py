"""Segments laid end to end, and what is supervised there, as flat indices.

R rows, T tokens of a row, N supervised tokens, P paths.
"""

from collections.abc import Mapping, Sequence

import attrs
import torch
from torch import Tensor

from ike_core.errors import DataError
from ike_core.examples import AnyExample, Segment

NOTHING = -1
"""In place of a flat index: no token came before."""


@attrs.define
class Rows:
    """Plain lists that grow while segments are laid down; then the tensors of a batch (see `ike_core.batch.Batch`)."""

    ids: list[int] = attrs.field(factory=list)
    positions: list[int] = attrs.field(factory=list)
    predictors: list[int] = attrs.field(factory=list)
    targets: list[int] = attrs.field(factory=list)
    weights: list[float] = attrs.field(factory=list)
    paths: list[int] = attrs.field(factory=list)
    ends: list[int] = attrs.field(factory=list)

    def lay(self, segment: Segment, *, position: int, after: int, weight: float) -> int:
        """Puts a segment where the last one ended; returns the flat index of the token that what follows comes after.

        `after` is the token read just before the first one (it predicts it), NOTHING where there is none; `weight`
        the row's, 0 for a segment that is supervised elsewhere.
        """
        start = len(self.ids)
        self.ids.extend(segment.tokens)
        self.positions.extend(range(position, position + len(segment)))
        for place, (token, token_weight) in enumerate(zip(segment.tokens, segment.weights, strict=True), start):
            predictor = after if place == start else place - 1
            if token_weight * weight and predictor != NOTHING:
                self.predictors.append(predictor)
                self.targets.append(token)
                self.weights.append(token_weight * weight)
                self.paths.append(len(self.ends))
        return len(self.ids) - 1 if len(segment) else after

    def fill(self, length: int, pad: int) -> None:
        """Pads until `length` tokens lie in all."""
        missing = length - len(self.ids)
        self.ids.extend([pad] * missing)
        self.positions.extend([0] * missing)

    def tensors(self, rows: int) -> Mapping[str, Tensor]:
        """Weights are float64: the product of two float32 needs it."""
        return {
            "input_ids": torch.tensor(self.ids, dtype=torch.long).view(rows, -1),
            "position_ids": torch.tensor(self.positions, dtype=torch.long).view(rows, -1),
            "predictors": torch.tensor(self.predictors, dtype=torch.long),
            "targets": torch.tensor(self.targets, dtype=torch.long),
            "target_weights": torch.tensor(self.weights, dtype=torch.float64),
            "target_paths": torch.tensor(self.paths, dtype=torch.long),
            "ends": torch.tensor(self.ends, dtype=torch.long),
        }


def refuse_empty(examples: Sequence[AnyExample]) -> None:
    """DataError where an example has no token: it has no end to read a score at."""
    for example in examples:
        if not len(example):
            raise DataError(f"{example.source or 'an example'} has no tokens; let its processor yield a Skip instead")
