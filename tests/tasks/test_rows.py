"""How examples lie in rows, and which places are supervised: by hand."""

import pytest
import torch

from ike_core.batch import weigh
from ike_core.errors import DataError
from ike_core.examples import AnyExample, Comparison, Example, LabelledExample, Segment, preference_pair
from ike_core.interfaces import Collate
from ike_core.layout import Layout, Tree
from ike_tasks import Packed, PaddedRows

COLLATES = (Packed(multiple_of=1), PaddedRows())
SUPERVISED = ("targets", "target_weights", "token_weights", "target_paths", "shared_targets", "shared_paths")


def examples() -> list[AnyExample]:
    return [
        Example((Segment.prompt([11, 12, 13]), Segment.answer([14, 15]))),
        preference_pair(
            [21, 22], [23, 24, 25], [23, 26], source="pairs:1", margin=0.25
        ),  # 23 is shared: it moves to the trunk
        LabelledExample(prompt=Segment.prompt([31]), answer=Segment.answer([32, 33]), desirable=True, weight=0.5),
    ]


def test_packed_rows_hold_every_token_once_and_positions_restart(vocabulary) -> None:
    batch = Packed(multiple_of=1).collate(examples(), vocabulary)
    assert batch["input_ids"].tolist() == [[11, 12, 13, 14, 15, 21, 22, 23, 24, 25, 26, 31, 32, 33]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 3, 0, 1, 2]]
    assert batch.layout == Layout(((Tree(5), Tree(3, (2, 1)), Tree(1, (2,))),))
    assert batch["predictors"].tolist() == [2, 3, 6, 7, 8, 7, 11, 12]  # 24 and 26 are both said after 23
    assert batch["targets"].tolist() == [14, 15, 23, 24, 25, 26, 32, 33]
    assert batch["target_weights"].tolist() == [1, 1, 1, 1, 1, 1, 0.5, 0.5]
    assert batch["token_weights"].tolist() == [1, 1, 1, 1, 1, 1, 1, 1]
    assert batch["target_paths"].tolist() == [0, 0, 1, 1, 1, 2, 3, 3]
    assert (batch["shared_targets"].tolist(), batch["shared_paths"].tolist()) == ([2], [2])  # 23 is said on both
    assert batch["ends"].tolist() == [4, 9, 10, 13]
    assert batch["row_weights"].tolist() == [1, 1, 0.5]
    assert batch["margins"].tolist() == [0, 0.25, 0]
    assert batch.weights == {"tokens": 7.0, "examples": 3.0, "pairs": 1.0}


def test_padded_rows_repeat_the_trunk_and_supervise_the_same(vocabulary) -> None:
    batch = PaddedRows().collate(examples(), vocabulary)
    assert batch["input_ids"].tolist() == [
        [11, 12, 13, 14, 15],
        [21, 22, 23, 24, 25],
        [21, 22, 23, 26, 0],
        [31, 32, 33, 0, 0],
    ]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]
    assert batch["position_ids"][2].tolist()[:4] == [0, 1, 2, 3]
    assert batch.layout is None
    assert batch["predictors"].tolist() == [2, 3, 6, 7, 8, 12, 15, 16]
    assert batch["ends"].tolist() == [4, 9, 13, 17]
    packed = Packed().collate(examples(), vocabulary)
    assert batch.weights == packed.weights
    for name in SUPERVISED:
        assert torch.equal(batch[name], packed[name])


@pytest.mark.parametrize("collate", COLLATES)
def test_the_completion_is_predicted_from_the_place_before_it(collate, vocabulary) -> None:
    """Prompt [1, 2], completion [3, 4]: logits at 1 and 2 say them."""
    batch = collate.collate([Example((Segment.prompt([1, 2]), Segment.answer([3, 4])))], vocabulary)
    assert batch["predictors"].tolist() == [1, 2]
    assert batch["targets"].tolist() == [3, 4]


@pytest.mark.parametrize("collate", COLLATES)
def test_a_path_ends_at_its_last_token_whatever_the_pad_token_is(collate, vocabulary) -> None:
    """A text full of pad ids: neither the first of them nor the end of the padded row is where a score is read."""
    texts = [Example((Segment.prompt([5, 0, 6, 0]),)), Example((Segment.prompt([7, 8, 9, 10, 11, 12]),))]
    batch = collate.collate(texts, vocabulary)
    at_ends = batch["input_ids"].flatten()[batch["ends"]]
    assert at_ends.tolist() == [0, 12]
    assert batch["ends"].tolist()[0] == 3


@pytest.mark.parametrize("collate", COLLATES)
def test_the_first_token_of_a_text_is_nobodys_target(collate, vocabulary) -> None:
    batch = collate.collate([Example((Segment.answer([3, 4]),)), Example((Segment.answer([5]),))], vocabulary)
    assert batch["targets"].tolist() == [4]
    assert batch.weights["tokens"] == 1.0


@pytest.mark.parametrize("collate", COLLATES)
def test_a_supervised_trunk_counts_once_in_its_first_path(collate, vocabulary) -> None:
    tree = Comparison(Segment.answer([3, 4, 5]), (Segment.answer([6]), Segment.answer([7]), Segment.answer([])))
    batch = collate.collate([tree], vocabulary)
    assert batch["targets"].tolist() == [4, 5, 6, 7]
    assert batch["target_paths"].tolist() == [0, 0, 0, 1]
    assert batch["shared_targets"].tolist() == [0, 1, 0, 1]
    assert batch["shared_paths"].tolist() == [1, 1, 2, 2]
    assert batch.weights["tokens"] == 4.0 == batch["target_weights"].sum().item()
    assert batch["input_ids"].flatten()[batch["ends"]].tolist() == [6, 7, 5]  # an empty branch ends with the trunk


@pytest.mark.parametrize("collate", COLLATES)
def test_weights_of_tokens_and_rows_multiply_exactly(collate, vocabulary) -> None:
    example = Example.of([3, 4, 5], [1.0, 0.1, 0.0], weight=0.3)
    batch = collate.collate([example], vocabulary)
    assert batch["targets"].tolist() == [4]
    assert batch["target_weights"].item() == batch.weights["tokens"] == weigh([example])["tokens"]


@pytest.mark.parametrize("collate", COLLATES)
def test_a_row_of_weight_zero_supervises_nothing(collate, vocabulary) -> None:
    batch = collate.collate([Example((Segment.answer([3, 4]),), weight=0.0)], vocabulary)
    assert batch["targets"].numel() == 0
    assert batch["ends"].tolist() == [1]


@pytest.mark.parametrize("collate", COLLATES)
def test_filler_is_a_real_row_of_one_token_with_no_weight(collate, vocabulary) -> None:
    batch = collate.collate([], vocabulary)
    assert batch["input_ids"].tolist() == [[vocabulary.pad]]
    assert batch.weights == {"tokens": 0.0, "examples": 0.0, "pairs": 0.0}
    assert [batch[name].numel() for name in ("predictors", "targets", "target_weights", "ends")] == [0, 0, 0, 0]


def test_rows_are_rounded_up_by_padding_that_no_document_owns(vocabulary) -> None:
    batch = Packed(multiple_of=8).collate(examples(), vocabulary)
    assert batch["input_ids"].shape == (1, 16)
    assert batch["input_ids"][0, 14:].tolist() == [vocabulary.pad] * 2
    assert batch.layout is not None
    assert sum(tree.size for tree in batch.layout.rows[0]) == 14
    assert Packed(multiple_of=8).collate([], vocabulary)["input_ids"].shape == (1, 8)


@pytest.mark.parametrize(("has_gpu", "length"), [(True, 128), (False, 14)])
def test_rows_are_whole_blocks_where_there_is_a_gpu(has_gpu, length, vocabulary, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert Packed().collate(examples(), vocabulary)["input_ids"].shape == (1, length)


@pytest.mark.parametrize("collate", COLLATES)
def test_an_example_without_tokens_is_refused_by_its_source(collate, vocabulary) -> None:
    with pytest.raises(DataError, match=r"train\.jsonl:3 has no tokens"):
        collate.collate([Example((Segment.prompt([]),), source="train.jsonl:3")], vocabulary)


def test_both_are_collates_and_say_whether_they_pad() -> None:
    assert isinstance(Packed(), Collate)
    assert isinstance(PaddedRows(), Collate)
    assert (Packed().pads, PaddedRows().pads) == (False, True)
