"""Tokens in are tokens out and the ledger's, for any mix, length policy and number of ranks."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ike_core.batch import Vocabulary
from ike_core.cutting import Ceiling
from ike_core.examples import Example
from ike_core.feed import Batches, Feed, Step
from ike_core.mixed_dataset import MixedDataset
from ike_core.mixing import MixedSource, MixingStage, Mixture
from ike_core.ordering import Ordering
from ike_data import HFTokenizer, InstructionProcessor, read_dataset
from ike_tasks import Packed, PaddedRows

VOCABULARY = Vocabulary(size=512, pad=0)
RANKS = (1, 2, 3, 5, 8)


@attrs.frozen
class Rank:
    """One of several, which says nothing to the others."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def replicas(self) -> int:
        return self.size


@attrs.frozen
class Numbers:
    """{"n": [3, 4, 5]}: these tokens, all learned."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        yield Example.of(record["n"], [1.0] * len(record["n"]))


def read(folder: Path, name: str, files: Path, processor: Any = None, **options: Any) -> Any:
    asked = {"limit": 0, "max_tokens": 0, "too_long": "skip", "budget": 1.0, "holdout": None, "workers": 1}
    asked |= {"folder": folder, "world": Rank(), "cache": folder / "cache", "say": lambda line: None}
    return read_dataset(name, [str(files)], processor or Numbers(), **(asked | options)).kept


def steps_by_rank(feed: Feed, ranks: int, steps: int) -> Iterator[tuple[Step, ...]]:
    """Of each step, what each rank does."""
    of_rank = (attrs.evolve(feed.batches, world=Rank(rank, ranks)) for rank in range(ranks))
    return zip(*(attrs.evolve(feed, batches=batches).steps(0, steps) for batches in of_rank), strict=True)


def read_by_model(step: Sequence[Step]) -> tuple[int, int]:
    """Real tokens of a step, and places of its tensors; filler apart."""
    batches = [micro.batch for rank in step for micro in rank.micro_batches if not micro.is_filler]
    places = sum(batch["input_ids"].numel() for batch in batches)
    padded = [batch for batch in batches if batch.layout is None]
    return places - sum(int((batch["attention_mask"] == 0).sum()) for batch in padded), places


LENGTHS: Mapping[str, Sequence[int]] = {
    "a": [2 + 7 * n % 29 for n in range(60)],
    "b": [2 + 5 * n % 13 for n in range(45)],
}
"""Of the rows of two sources. The first is cut at 16 tokens: 28 of its 60 rows have more."""


@pytest.fixture(scope="module", params=["skip", "truncate_left", "truncate_right"])
def kept_and_lost(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[MixedDataset, int]:
    """Both sources under a length policy, and the tokens that the ledger names."""
    folder = tmp_path_factory.mktemp("accounting")
    for name, sizes in LENGTHS.items():
        lines = (json.dumps({"n": list(range(1, size + 1))}) + "\n" for size in sizes)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    a = read(folder, "train.a", folder / "a.jsonl", max_tokens=16, too_long=request.param)
    b = read(folder, "train.b", folder / "b.jsonl")
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return MixedDataset({"a": a, "b": b}), sum(entry["tokens"] for entry in ledger)


@given(st.sampled_from(RANKS), st.booleans(), st.floats(0.05, 20), st.integers(1, 40))
@settings(max_examples=10)
def test_every_token_of_every_row_is_learned_once_or_in_the_ledger(
    kept_and_lost: tuple[MixedDataset, int], ranks: int, pads: bool, weight: float, examples_per_step: int
) -> None:
    """One pass over both sources, in any shares."""
    dataset, lost = kept_and_lost
    sources = tuple(MixedSource(name=name, size=len(part), passes=1) for name, part in dataset.parts.items())
    mixture = Mixture(sources, (MixingStage(0, (weight, 1.0)),), examples_per_step, seed=3)
    collate = PaddedRows() if pads else Packed(multiple_of=1)
    batches = Batches(
        partial(collate.collate, vocabulary=VOCABULARY), Ceiling(64, pads=pads), Rank(), counts_as_weigh=True
    )
    feed = Feed(dataset, mixture, batches, source_of=dataset.source_of)
    out = supervised = 0.0
    for step in steps_by_rank(feed, ranks, -(-len(dataset) // examples_per_step)):
        tokens, _ = read_by_model(step)
        out += tokens
        learned = sum(micro.batch.weights["tokens"] for rank in step for micro in rank.micro_batches)
        supervised += learned
        assert {rank.tokens for rank in step} == {tokens}
        assert {rank.weights["tokens"] for rank in step} == {learned}
        assert sum(drawn.tokens for drawn in step[0].sources.values()) == tokens
        assert sum(drawn.supervised_tokens for drawn in step[0].sources.values()) == learned
    assert out + lost == sum(map(sum, LENGTHS.values()))
    assert supervised == out - len(dataset)  # all but the first of each row


@pytest.mark.parametrize("ranks", RANKS)
def test_packed_rows_of_real_text_are_all_content(shared_data: Path, tmp_path: Path, ranks: int) -> None:
    """A step of 256 examples, in micro-batches of at most 8192 tokens: no place is padding, and nothing is lost.

    Where lengths are rounded up to 128, for a GPU, a micro-batch has at most 127 places more.
    """
    tokenizer = HFTokenizer(path=str(shared_data / "stories260K"))
    file = shared_data / "gsm8k" / "grade_school_math__data__test.jsonl"
    processor = InstructionProcessor(tokenizer=tokenizer)
    dataset = read(tmp_path, "train", file, processor, limit=256, max_tokens=2048)
    places = {}
    for multiple in (1, 128):
        collate = Packed(multiple_of=multiple)
        batches = Batches(partial(collate.collate, vocabulary=VOCABULARY), Ceiling(8192), Rank(), counts_as_weigh=True)
        feed = Feed(dataset, Ordering(len(dataset), 256, seed=1), batches)
        (step,) = steps_by_rank(feed, ranks, 1)
        places[multiple] = read_by_model(step)[1]
    content = sum(dataset.size(index) for index in range(len(dataset)))
    assert step[0].tokens == content == places[1]
    assert places[128] - content < 128 * sum(not micro.is_filler for rank in step for micro in rank.micro_batches)
    learned = sum(micro.batch.weights["tokens"] for rank in step for micro in rank.micro_batches)
    assert learned == sum(dataset.weights(index)["tokens"] for index in range(len(dataset))) > 0
