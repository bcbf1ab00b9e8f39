"""Padding is known by length, never by id: many models pad with their end-of-turn, and that must be learned (B37)."""

from collections.abc import Sequence

import pytest
import torch

from ike_core import Batch, Example, Vocabulary
from ike_core.interfaces import Collate
from ike_core.runtime import Padded
from ike_tasks import Packed, PaddedRows

END = 4
VOCABULARY = Vocabulary(size=64, pad=END, eos=END)
PROMPT = [3, 20, 21, END, 3, 22]  # a turn of the user's, whose own end is read and not learned
SHORT, LONG = [30, 31, END], [30, 31, 32, 33, 34, 35, 36, 37, 38, END]


def conversation(answer: Sequence[int]) -> Example:
    return Example.of([*PROMPT, *answer, 23], [0.0] * len(PROMPT) + [1.0] * len(answer) + [0.0])


EXAMPLES = [conversation(SHORT), conversation(LONG)]


def labels_of(batch: Batch) -> list[list[int]]:
    """What each row of a batch in transformers' names learns."""
    return [[label for label in row if label != -100] for row in batch["labels"].tolist()]


def targets_of(batch: Batch) -> list[list[int]]:
    """What each path of a batch of supervised places learns."""
    return [batch["targets"][batch["target_paths"] == path].tolist() for path in (0, 1)]


@pytest.mark.parametrize(
    ("collate", "learned"),
    [(Padded(), labels_of), (PaddedRows(), targets_of), (Packed(multiple_of=32), targets_of)],
)
def test_each_answer_is_learned_with_its_one_end(collate: Collate, learned) -> None:
    """3 and 10 tokens; were padding masked by its id, 2 and 9."""
    batch = collate.collate(EXAMPLES, VOCABULARY)
    assert learned(batch) == [SHORT, LONG]
    assert batch.weights["tokens"] == 3 + 10


def test_only_padding_is_hidden() -> None:
    mask = Padded().collate(EXAMPLES, VOCABULARY)["attention_mask"]
    lengths = torch.tensor([len(example) for example in EXAMPLES])
    assert torch.equal(mask.sum(1), lengths)
    assert PaddedRows().collate(EXAMPLES, VOCABULARY)["attention_mask"].sum(1).tolist() == lengths.tolist()
