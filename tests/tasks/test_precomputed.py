"""What a reference says, computed beforehand: the numbers of asking it, kept by what they are numbers of."""

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest
import torch

from ike_core.batch import weigh
from ike_core.context import Context
from ike_core.cutting import Ceiling
from ike_core.errors import DataError, TrainingError
from ike_core.examples import AnyExample, Example, LabelledExample, Segment, preference_pair
from ike_core.feed import Batches
from ike_core.frozen_models import FrozenModels
from ike_core.runtime.torch_world import TorchWorld
from ike_tasks import BCO, DPO, Packed, PaddedRows, target_logprobs
from ike_tasks.kept_logprobs import write_index
from ike_tasks.precomputing import Precomputing

ROWS: list[AnyExample] = [
    preference_pair([11, 12, 13], [21, 22, 23], [24, 25, 26, 27], source="pairs:1"),
    preference_pair([16, 17], [31, 32, 33, 34], [31, 32, 35], source="pairs:2"),
    preference_pair([18], [41], [42, 43], weight=0.0, source="pairs:3"),
    preference_pair([], [44, 45], [46, 2], source="pairs:4"),
    preference_pair([16, 17], [31, 32, 33, 34], [31, 32, 35], source="pairs:5"),
]


@attrs.frozen
class Rows:
    """A dataset of examples in memory."""

    examples: Sequence[AnyExample]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> AnyExample:
        return self.examples[index]

    def size(self, index: int) -> int:
        return len(self.examples[index])

    def weights(self, index: int) -> dict[str, float]:
        return weigh([self.examples[index]])


@pytest.fixture
def precomputing(tmp_path: Path, vocabulary) -> Callable[..., Precomputing]:
    """(model, rows) -> what the run does, and what it says."""
    said: list[str] = []

    def precomputing(model, *sets: Sequence[AnyExample], collate=None, tokens: int = 16) -> Precomputing:
        collate = collate or Packed(multiple_of=1)
        world = TorchWorld.start(needs_group=False)
        ceiling = Ceiling(tokens, 0, pads=collate.pads)
        batches = Batches(lambda examples: collate.collate(examples, vocabulary), ceiling, world, counts_as_weigh=True)
        return Precomputing(
            name="reference", model=collate.prepare(model), datasets=[Rows(rows) for rows in sets], batches=batches,
            place=lambda batch: batch, world=world, folder=tmp_path, say=said.append,
        )  # fmt: skip

    precomputing.said = said
    return precomputing


@pytest.mark.parametrize("kept_by", [Packed(multiple_of=1), PaddedRows()])
@pytest.mark.parametrize("read_by", [Packed(multiple_of=1), PaddedRows()])
def test_numbers_kept_are_those_of_asking(kept_by, read_by, precomputing, new_model, copy_of, vocabulary) -> None:
    """To 1e-10 in float64, whatever the rows that it was computed in and those that it is read for."""
    lm = new_model().requires_grad_(False)
    online = read_by.prepare(copy_of(lm))
    _, batches = precomputing(lm, ROWS, collate=kept_by).run()
    for rows in (ROWS, ROWS[1:3], []):
        batch = read_by.collate(rows, vocabulary)
        kept = attrs.evolve(batches.collate, collate=lambda examples, batch=batch: batch)(rows)
        precomputed = kept["frozen_logprobs"]["reference"]
        assert torch.allclose(precomputed, target_logprobs(online, batch), rtol=0, atol=1e-10)


def test_an_objective_does_not_see_the_difference(precomputing, new_model, copy_of) -> None:
    lm, twin, policy = new_model(), new_model(), new_model("llama", tied=False)
    model = Packed().prepare(policy)
    frozen, batches = precomputing(lm.requires_grad_(False), ROWS).run()
    batch = batches.collate(ROWS)
    losses = [
        DPO()(model, batch, Context(step=0, steps=1, frozen=FrozenModels(reference=reference))).terms[0][1].total
        for reference in (frozen, Packed().prepare(twin.requires_grad_(False)))
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-10)


def test_a_second_run_reads_what_the_first_has_kept(precomputing, new_model, monkeypatch) -> None:
    lm = new_model()
    precomputing(lm, ROWS[:3], ROWS[3:]).run()
    monkeypatch.setattr(Precomputing, "_build", None)  # it would be called
    _, batches = precomputing(lm, ROWS[:3], ROWS[3:], tokens=64).run()
    assert ["computed in" in line for line in precomputing.said] == [True, False]
    assert "of 6 answers read" in precomputing.said[1]  # of three pairs, of which one is there twice
    assert len(batches.collate(ROWS)["frozen_logprobs"]["reference"]) == 3 + 4 + 2 * (2 + 2 + 1) + 1 + 1


def changed_weight(lm) -> None:
    next(lm.parameters()).data[5, 3] += 1e-7


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (changed_weight, ROWS),
        (lambda lm: None, [*ROWS, preference_pair([1], [2], [3])]),  # a row more
        (lambda lm: None, ROWS[1:]),  # a row less
        (lambda lm: None, [preference_pair([11, 12], [21, 22, 23], [24, 25, 26, 27]), *ROWS[1:]]),  # another prompt
        (lambda lm: None, [preference_pair([11, 12, 13, 21], [22, 23], [24, 25, 26, 27]), *ROWS[1:]]),  # another border
        (lambda lm: lm.float(), ROWS),  # another precision
    ],
)
def test_what_is_stale_is_not_found(change, rows, precomputing, new_model) -> None:
    lm = new_model()
    first = precomputing(lm, ROWS)._key()
    assert precomputing(lm, ROWS)._key() == first
    change(lm)
    assert precomputing(lm, rows)._key() != first


def test_pairs_that_are_taken_apart_find_their_answers(precomputing, new_model) -> None:
    """What two answers share is the trunk's in a pair, and the answer's own in a labelled row."""
    _, batches = precomputing(new_model(), ROWS).run()
    whole = batches.collate([ROWS[1]])["frozen_logprobs"]["reference"]
    apart = batches.collate(BCO().widen([ROWS[1]]))["frozen_logprobs"]["reference"]
    assert torch.equal(apart, torch.cat([whole[:4], whole[:2], whole[4:]]))


def test_a_row_that_was_not_asked_about_is_named(precomputing, new_model) -> None:
    _, batches = precomputing(new_model(), ROWS).run()
    stranger = LabelledExample(Segment.prompt([1, 2]), Segment.answer([3]), desirable=True, source="rows:9")
    with pytest.raises(TrainingError, match=r"rows:9: what frozen\.reference says of it was not computed beforehand"):
        batches.collate([stranger])


def test_more_than_the_rows_own_tokens_is_refused(precomputing, new_model) -> None:
    frozen, batches = precomputing(new_model(), [Example((Segment.answer([3, 4]),))]).run()
    with pytest.raises(TrainingError, match="leave out precomputed"):
        frozen(input_ids=torch.tensor([[1]]))
    with pytest.raises(TrainingError, match="leave out precomputed"):
        frozen.logit_source(batches.collate([]))


def test_a_rank_whose_share_is_elsewhere_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"rank 0's share is not there; let data\.cache be a folder that all hosts share"
    ):
        write_index(tmp_path, 2)
