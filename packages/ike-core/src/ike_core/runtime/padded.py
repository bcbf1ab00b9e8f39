"""`Padded`: rows as long as the longest, in the names that `model(**samples)` of transformers takes."""

from collections.abc import Sequence
from typing import Self

import attrs
import torch
from torch import nn

from ike_core.batch import Batch, Vocabulary, weigh
from ike_core.errors import DataError
from ike_core.examples import AnyExample, Example

IGNORED = -100
"""torch's ignore_index: a label that nothing is learned from."""


@attrs.frozen
class Padded:
    """A batch as transformers has them: input_ids, attention_mask, position_ids, labels, all [B, T].

    B examples, T tokens of the longest, padded on the right; labels are not shifted, since the model shifts them.
    """

    pads: bool = attrs.field(default=True, init=False)

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model itself: it reads these rows already."""
        return model

    def collate(self, examples: Sequence[AnyExample], vocabulary: Vocabulary) -> Batch:
        """Int64 tensors on the host; `weights` are those of `weigh(examples)`.

        No examples: filler, a row of two tokens with one label, so that its loss is finite; all its weights are 0.
        DataError for trees, and for token weights that a label can't carry (those other than 0 and 1).
        """
        rows = [_row(example) for example in examples] or [([vocabulary.pad] * 2, [IGNORED, vocabulary.pad])]
        longest = max(len(tokens) for tokens, _ in rows)
        input_ids_BT = torch.full((len(rows), longest), vocabulary.pad)
        labels_BT = torch.full((len(rows), longest), IGNORED)
        attention_mask_BT = torch.zeros((len(rows), longest), dtype=torch.int64)
        for row, (tokens, labels) in enumerate(rows):
            input_ids_BT[row, : len(tokens)] = torch.tensor(tokens)
            labels_BT[row, : len(labels)] = torch.tensor(labels)
            attention_mask_BT[row, : len(tokens)] = 1
        position_ids_BT = torch.arange(longest).expand(len(rows), longest).contiguous()
        tensors = {
            "input_ids": input_ids_BT,
            "attention_mask": attention_mask_BT,
            "position_ids": position_ids_BT,
            "labels": labels_BT,
        }
        return Batch(tensors, weigh(examples))

    def check(
        self,
        model: nn.Module,  # noqa: ARG002
        examples: Sequence[AnyExample],  # noqa: ARG002
        vocabulary: Vocabulary,  # noqa: ARG002
        *,
        packing: str,  # noqa: ARG002
    ) -> tuple[Self, str]:
        """Nothing to find out: padding is what every model reads."""
        return self, ""


def _row(example: AnyExample) -> tuple[list[int], list[int]]:
    """Tokens and labels of one example."""
    if not isinstance(example, Example):
        raise DataError(
            f"{example.source}: {type(example).__name__} has several paths, and a padded row is one; "
            'name an objective that learns from it, or batch.collate = { uses = "ike_tasks:Packed" }'
        )
    trunk = example.trunk
    tokens = list(trunk.tokens)
    weights = [weight * example.weight for weight in trunk.weights]
    odd = next((weight for weight in weights if weight not in (0.0, 1.0)), None)
    if odd is not None:
        raise DataError(
            f"{example.source}: a token weight of {odd:g} (times the row's); the labels of a padded batch are on or "
            'off, 1 or 0; name an objective that takes weights, or batch.collate = { uses = "ike_tasks:Packed" }'
        )
    return tokens, [token if weight else IGNORED for token, weight in zip(tokens, weights, strict=True)]
