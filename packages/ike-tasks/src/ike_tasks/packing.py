"""Packed rows: documents end to end in one row a micro-batch, trees with their trunk once, no padding."""

from collections.abc import Sequence

import attrs
import torch
from torch import nn

from ike_core.batch import Batch, Vocabulary, weigh
from ike_core.examples import AnyExample
from ike_core.interfaces import Collate
from ike_core.layout import Layout, Tree
from ike_tasks import attention, self_check
from ike_tasks.padding import PaddedRows
from ike_tasks.rows import NOTHING, Rows, refuse_empty
from ike_tasks.scoring import ScoringModel


def _row_multiple() -> int:
    return 128 if torch.cuda.is_available() else 1  # FlexAttention's block: nothing recompiles for a new length


@attrs.frozen
class Packed:
    """One row [1, T] a micro-batch: positions restart with every document, attention never crosses one."""

    multiple_of: int = attrs.field(factory=_row_multiple, validator=attrs.validators.ge(1))
    """T is rounded up to a multiple of this. Default: 128 where there is a GPU, else 1."""

    @property
    def pads(self) -> bool:
        """Rows are as long as their content."""
        return False

    def prepare(self, model: nn.Module) -> ScoringModel:
        """The model with attention over documents and the lean head, where it can have them."""
        attention.register()
        return ScoringModel.of(model, attention=attention.NAME)

    def collate(self, examples: Sequence[AnyExample], vocabulary: Vocabulary) -> Batch:
        """Supervised tokens lie in the order of examples, trunk first, then branch after branch."""
        refuse_empty(examples)
        rows = Rows()
        for example in examples:
            _lay_tree(rows, example)
        trees = tuple(example.tree for example in examples)
        if not examples:
            rows.fill(1, vocabulary.pad)
            trees = (Tree(1),)
        rows.fill(-(-len(rows.ids) // self.multiple_of) * self.multiple_of, vocabulary.pad)
        tensors = {**rows.tensors(1, examples), "attention_mask": attention.placeholder()}
        return Batch(tensors, weigh(examples), Layout((trees,)))

    def check(
        self, model: nn.Module, examples: Sequence[AnyExample], vocabulary: Vocabulary, *, packing: str
    ) -> tuple[Collate, str]:
        """Collective under ZeRO-3. Packed rows where the model reads them right, padded ones where it doesn't."""
        if packing == "off":
            return PaddedRows().check(model, examples, vocabulary, packing=packing)
        return self_check.choose(model, examples, vocabulary, packed=self, padded=PaddedRows(), packing=packing)


def _lay_tree(rows: Rows, example: AnyExample) -> None:
    trunk = example.trunk
    first = len(rows.targets)
    fork = rows.lay(trunk, position=0, after=NOTHING, weight=example.weight)
    last = len(rows.targets)
    if not example.branches:
        rows.ends.append(fork)
    for number, branch in enumerate(example.branches):
        if number:
            rows.share(first, last)
        rows.ends.append(rows.lay(branch, position=len(trunk), after=fork, weight=example.weight))
