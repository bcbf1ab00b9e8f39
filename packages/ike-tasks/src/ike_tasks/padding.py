"""Padded rows: every path a row of its own, as long as the longest. For models that can't read packed rows."""

from collections.abc import Sequence

import attrs
import torch
from torch import nn

from ike_core.batch import Batch, Vocabulary, weigh
from ike_core.examples import AnyExample, Segment
from ike_core.interfaces import Collate
from ike_tasks import self_check
from ike_tasks.rows import NOTHING, Rows, refuse_empty
from ike_tasks.scoring import ScoringModel

_NO_BRANCH = Segment((), ())


@attrs.frozen
class PaddedRows:
    """[P, T], a row a path, padded on the right; trees repeat their trunk, which is supervised in the first path only.

    The supervised tokens are the same, in the same order, as those of `Packed`.
    """

    @property
    def pads(self) -> bool:
        """A row is as long as the longest of its micro-batch."""
        return True

    def prepare(self, model: nn.Module) -> ScoringModel:
        """The model with the lean head, where it can have it."""
        return ScoringModel.of(model)

    def collate(self, examples: Sequence[AnyExample], vocabulary: Vocabulary) -> Batch:
        """Supervised tokens lie in the order of examples, trunk first, then branch after branch."""
        refuse_empty(examples)
        sizes = [size for example in examples for size in _sizes(example)] or [1]
        rows, length = Rows(), max(sizes)
        for example in examples:
            _lay_paths(rows, example, length, vocabulary.pad)
        rows.fill(length, vocabulary.pad)
        mask_RT = torch.arange(length) < torch.tensor(sizes)[:, None]
        return Batch({**rows.tensors(len(sizes), examples), "attention_mask": mask_RT.long()}, weigh(examples))

    def check(
        self,
        model: nn.Module,
        examples: Sequence[AnyExample],
        vocabulary: Vocabulary,
        *,
        packing: str,  # noqa: ARG002
    ) -> tuple[Collate, str]:
        """Collective under ZeRO-3. Whether the lean head gives what the model's own logits give."""
        return self, self_check.check_head(model, examples, vocabulary, padded=self)


def _sizes(example: AnyExample) -> list[int]:
    """Tokens of each of its paths."""
    return [len(example.trunk) + len(branch) for branch in example.branches or (_NO_BRANCH,)]


def _lay_paths(rows: Rows, example: AnyExample, length: int, pad: int) -> None:
    """Each path in a row of `length`."""
    trunk, first, last = example.trunk, len(rows.targets), 0
    for number, branch in enumerate(example.branches or (_NO_BRANCH,)):
        start = len(rows.ids)
        fork = rows.lay(trunk, position=0, after=NOTHING, weight=0.0 if number else example.weight)
        if number:
            rows.share(first, last)
        else:
            last = len(rows.targets)
        rows.ends.append(rows.lay(branch, position=len(trunk), after=fork, weight=example.weight))
        rows.fill(start + length, pad)
