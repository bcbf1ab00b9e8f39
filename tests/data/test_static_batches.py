"""Packed numpy batches: one shape, every token once, targets that follow in the same document."""

import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core import Comparison, ConfigError, DataError, Example, Segment
from ike_data import InstructionProcessor, StaticBatch, StaticBatches, open_source

PAD = 99


def documents(sizes: list[int]) -> list[Example]:
    """The n-th says 1000 n, 1000 n + 1, ...; every third token is read only; the rows weigh 1, 0.5, 1, ..."""
    return [
        Example.of(
            [1000 * number + place for place in range(size)],
            [0.0 if place % 3 == 0 else 0.5 + place % 3 for place in range(size)],
            weight=1.0 / (1 + number % 2),
        )
        for number, size in enumerate(sizes, 1)
    ]


def of(sizes: list[int], **settings: Any) -> StaticBatches:
    return StaticBatches(examples=documents(sizes), **{"rows": 2, "tokens": 8, "pad": PAD, **settings})


def stretches(batch: StaticBatch) -> list[tuple[list[int], list[int], list[float], list[int]]]:
    """Ids, targets, weights and positions of every document of a batch, read off the arrays."""
    found = []
    for row, numbers in enumerate(batch.segments):
        for number in range(1, numbers.max() + 1):
            (columns,) = np.nonzero(numbers == number)
            assert columns.tolist() == list(range(columns[0], columns[-1] + 1)), "a document is in one piece"
            arrays = (batch.input_ids, batch.targets, batch.weights, batch.positions)
            found.append(tuple(array[row, columns].tolist() for array in arrays))
    return found


sizes = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@given(sizes, st.integers(1, 4), st.integers(2, 9), st.integers(1, 50), st.integers(0, 3))
def test_every_token_is_there_once(lengths: list[int], rows: int, tokens: int, window: int, epoch: int) -> None:
    batches = of(lengths, rows=rows, tokens=tokens, window=window, too_long="split")
    made = list(batches.epoch(epoch))
    examples = documents(lengths)
    said = Counter(token for example in examples for token in example.trunk.tokens)
    found = Counter(token for batch in made for ids, *_ in stretches(batch) for token in ids)
    assert found == said
    assert sum(batch.tokens for batch in made) == sum(lengths)
    learned = sum(float(batch.weights.astype(np.float64).sum()) for batch in made)
    assert learned == sum(example.supervised for example in examples)  # halves and quarters: exact


@given(sizes, st.integers(2, 9))
def test_a_target_is_what_follows_in_the_document(lengths: list[int], tokens: int) -> None:
    examples = documents(lengths)
    for batch in of(lengths, tokens=tokens, too_long="split").epoch(0):
        for array in (batch.input_ids, batch.targets, batch.weights, batch.positions, batch.segments):
            assert array.shape == (2, tokens)
        padding = batch.segments == 0
        assert set(batch.input_ids[padding]) | set(batch.targets[padding]) <= {PAD}
        assert not batch.weights[padding].any()
        assert not batch.positions[padding].any()
        for ids, targets, weights, positions in stretches(batch):
            example = examples[ids[0] // 1000 - 1]
            assert positions == list(range(len(ids)))
            for token, target, weight in zip(ids, targets, weights, strict=True):
                place = token % 1000 + 1
                if place < len(example):
                    assert (target, weight) == (token + 1, example.trunk.weights[place] * example.weight)
                else:
                    assert (target, weight) == (PAD, 0.0)


def test_a_document_that_fits_is_in_one_row() -> None:
    made = list(of([8, 3, 5, 2, 6, 1, 7], window=3).epoch(0))
    assert sorted(len(ids) for batch in made for ids, *_ in stretches(batch)) == [1, 2, 3, 5, 6, 7, 8]


def test_a_document_that_is_longer_than_a_row_is_refused_by_name() -> None:
    rows = [Example.of(range(9), [1.0] * 9, source="a.jsonl:7")]
    with pytest.raises(
        DataError, match=r"^a.jsonl:7 has 9 tokens, and a row 8; make rows longer, set too_long='split'"
    ):
        list(StaticBatches(examples=rows, rows=2, tokens=8).epoch(0))


def test_splitting_keeps_every_token_of_the_case() -> None:
    rows = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10], [11]]  # case B51
    examples = [Example.of(ids, [1.0] * len(ids)) for ids in rows]
    made = list(StaticBatches(examples=examples, rows=3, tokens=4, too_long="split").epoch(0))
    assert sorted(token for batch in made for ids, *_ in stretches(batch) for token in ids) == list(range(1, 12))
    assert sum(float(batch.weights.sum()) for batch in made) == 11 - 4  # the first of each row follows nothing


def test_trees_are_refused() -> None:
    pair: Any = Comparison(Segment.prompt([1]), (Segment.answer([2]), Segment.answer([3])))
    with pytest.raises(DataError, match="example 0 is a Comparison, and not one sequence"):
        list(StaticBatches(examples=[pair], rows=2, tokens=8).epoch(0))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = [1 + n % 7 for n in range(60)]
    one = list(of(lengths, window=16, seed=3).plans(2))
    assert one == list(of(lengths, window=16, seed=3).plans(2))
    assert one != list(of(lengths, window=16, seed=4).plans(2))
    assert one != list(of(lengths, window=16, seed=3).plans(3))


def test_going_on_behind_a_batch_gives_those_that_follow() -> None:
    batches = of([1 + n % 7 for n in range(60)], window=16)
    whole = [batch.input_ids.tolist() for batch in batches.epoch(1)]
    rest = [batch.input_ids.tolist() for batch in map(batches.batch, islice(batches.plans(1), 4, None))]
    assert rest == whole[4:]


def test_rows_are_full() -> None:
    lengths = [20 + 37 * n % 800 for n in range(3000)]
    plans = list(of(lengths, rows=8, tokens=1024).plans(0))
    # The lengths' sum over the rows' room; the best possible is ceil(sum / 1024) rows, and the last batch is not full.
    assert sum(lengths) / (len(plans) * 8 * 1024) > 0.99


def test_a_stored_dataset_is_as_good_as_a_list(read, write, fix_tok) -> None:
    rows = [{"prompt": "p" * n, "response": "r" * n} for n in range(1, 30)]
    stored = read(write("rows.jsonl", rows), InstructionProcessor(fix_tok)).kept
    settings: Any = {"rows": 2, "tokens": 32, "too_long": "split"}
    one = list(StaticBatches(examples=stored, **settings).epoch(0))
    two = list(StaticBatches(examples=[stored[place] for place in range(len(stored))], **settings).epoch(0))
    assert sum(batch.tokens for batch in one) == sum(2 * n + 1 for n in range(1, 30))
    for mapped, listed in zip(one, two, strict=True):
        assert mapped.input_ids.tolist() == listed.input_ids.tolist()
        assert mapped.weights.tolist() == listed.weights.tolist()


def test_without_numpy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ConfigError, match=r"pip install 'ike-data\[numpy\]'"):
        next(of([3]).epoch(0))


def test_nothing_gives_no_batches_but_an_error() -> None:
    with pytest.raises(DataError, match="no examples"):
        next(of([]).epoch(0))


def test_a_token_index_is_read_in_place(tmp_path: Path) -> None:
    np.save(tmp_path / "corpus.npy", np.arange(20, dtype=np.uint16))
    np.save(tmp_path / "corpus.offsets.npy", np.array([0, 7, 9, 20]))
    batches = StaticBatches(examples=open_source(tmp_path / "corpus.npy"), rows=1, tokens=8, too_long="split")
    documents = [ids for batch in batches.epoch(0) for ids, *_ in stretches(batch)]
    assert sorted(documents) == [[*range(7)], [7, 8], [*range(9, 17)], [17, 18, 19]]
