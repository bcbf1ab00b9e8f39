"""A padded batch says to a model of transformers what its examples say."""

import math

import pytest
import torch
from torch.nn.functional import log_softmax

from ike_core.batch import Vocabulary
from ike_core.errors import DataError
from ike_core.examples import Example, LabelledExample, Segment, preference_pair
from ike_core.interfaces import Collate
from ike_core.runtime.padded import Padded

VOCABULARY = Vocabulary(size=64, pad=9)
LONG = Example((Segment.prompt([1, 5]), Segment.answer([6, 7, 2])), source="a.jsonl:1")
SHORT = Example((Segment.prompt([1]), Segment.answer([8])), source="a.jsonl:2")


def test_it_is_a_collate_that_pads() -> None:
    assert isinstance(Padded(), Collate)
    assert Padded().pads


def test_the_tensors_are_those_of_transformers() -> None:
    batch = Padded().collate([LONG, SHORT], VOCABULARY)
    assert {name: tensor.tolist() for name, tensor in batch.tensors.items()} == {
        "input_ids": [[1, 5, 6, 7, 2], [1, 8, 9, 9, 9]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]],
        "position_ids": [[0, 1, 2, 3, 4]] * 2,
        "labels": [[-100, -100, 6, 7, 2], [-100, 8, -100, -100, -100]],
    }
    assert all(tensor.dtype == torch.int64 for tensor in batch.tensors.values())
    assert batch.layout is None


def test_the_weights_are_counted_on_the_host() -> None:
    first_token_learned = Example.of([3, 4, 5], [1, 1, 0])  # the first has no predecessor: 1, not 2
    batch = Padded().collate([LONG, SHORT, first_token_learned], VOCABULARY)
    assert batch.weights == {"tokens": 3 + 1 + 1, "examples": 3, "pairs": 0}


def test_a_models_loss_is_the_mean_over_the_supervised_tokens(tiny_llama) -> None:
    """Against each sequence alone, unpadded; transformers takes the logits to float32 before it sums."""
    model = tiny_llama.double().eval()
    total = 0.0
    for tokens, supervised in (([1, 5, 6, 7, 2], [2, 3, 4]), ([1, 8], [1])):
        logp_TV = log_softmax(model(torch.tensor([tokens])).logits[0], dim=-1)
        total -= sum(logp_TV[at - 1, tokens[at]].item() for at in supervised)
    batch = Padded().collate([LONG, SHORT], VOCABULARY)
    assert model(**batch.tensors).loss.item() == pytest.approx(total / 4, rel=1e-6)


def test_filler_has_a_finite_loss_a_graph_and_no_weight(tiny_llama) -> None:
    batch = Padded().collate([], VOCABULARY)
    assert batch["input_ids"].shape == (1, 2)
    assert batch.weights == {"tokens": 0, "examples": 0, "pairs": 0}
    loss = tiny_llama(**batch.tensors).loss
    assert math.isfinite(loss.item())
    loss.backward()
    assert all(parameter.grad is not None for parameter in tiny_llama.parameters())


def test_a_row_weight_of_0_or_1_is_carried_by_the_labels() -> None:
    off = Example((Segment.prompt([1]), Segment.answer([8])), weight=0.0)
    halves = Example((Segment.prompt([1]), Segment.answer([8], weight=0.5)), weight=2.0)
    batch = Padded().collate([off, halves], VOCABULARY)
    assert batch["labels"].tolist() == [[-100, -100], [-100, 8]]
    assert batch.weights["tokens"] == 1.0


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (Example.of([1, 2], [0, 0.5], source="w.jsonl:3"), r"w\.jsonl:3: a token weight of 0\.5"),
        (Example.of([1, 2], [0, 1], weight=2.0, source="w.jsonl:4"), r"w\.jsonl:4: a token weight of 2"),
        (preference_pair([1], [2], [3], source="p.jsonl:5"), r"p\.jsonl:5: Comparison .*ike_tasks:Packed"),
        (
            LabelledExample(Segment.prompt([1]), Segment.answer([2]), desirable=True, source="k.jsonl:6"),
            r"k\.jsonl:6: LabelledExample",
        ),
    ],
)
def test_what_labels_can_not_carry_is_refused_with_its_row(example, said) -> None:
    with pytest.raises(DataError, match=said):
        Padded().collate([SHORT, example], VOCABULARY)


def test_nothing_is_prepared_and_nothing_needs_checking(tiny_llama) -> None:
    part = Padded()
    assert part.prepare(tiny_llama) is tiny_llama
    assert part.check(tiny_llama, [LONG], VOCABULARY, packing="auto") == (part, "")
