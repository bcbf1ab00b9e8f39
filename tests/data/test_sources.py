"""What has random access: a user's records are processed into a store, examples and token indexes are read in place."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from ike_core import Comparison, DataError, Example, preference_pair, weigh
from ike_core.interfaces import Holdout
from ike_data.measuring import TYPECODES


@attrs.frozen
class Numbers:
    """A user's own class: the row's numbers, all but the first learned."""

    def process(self, record: Any) -> Iterator[Example]:
        yield Example.of(record["n"], [0.0, *[1.0] * (len(record["n"]) - 1)])


@attrs.frozen
class Squares:
    """Records that are made up."""

    count: int
    offset: int = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"n": [index + self.offset, index * index, 7]}


@attrs.frozen
class Given:
    """Whatever it was given."""

    items: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def tokens(dataset) -> list[list[int]]:
    return [list(example.trunk.tokens) for example in dataset]


@pytest.mark.parametrize("limit", [0, 2])
def test_records_of_a_source_are_processed_once_for_all_runs(read, tmp_path, limit) -> None:
    for _ in range(2):
        kept = read(Squares(5), Numbers(), limit=limit).kept
        assert tokens(kept) == [[n, n * n, 7] for n in range(limit or 5)]
        assert [example.source for example in kept][:2] == ["Squares[0]", "Squares[1]"]
    assert len(list((tmp_path / "cache").glob("*/store.json"))) == 1
    read(Squares(5, offset=1), Numbers(), limit=limit)
    assert len(list((tmp_path / "cache").glob("*/store.json"))) == 2


def test_a_source_that_gives_other_records_than_before_is_refused(read, monkeypatch) -> None:
    read(Squares(5), Numbers())
    monkeypatch.setattr(Squares, "__getitem__", lambda self, index: {"n": [index, 8, 7]})
    with pytest.raises(DataError, match=r"Squares\[0\]: Squares, or Numbers, .* tokens: number 1 is 8 instead of 0"):
        read(Squares(5), Numbers())


EXAMPLES = (
    Example.of([1, 2, 3], [0, 1, 1]),
    Example.of(range(10), [0] + [0.5] * 9, source="of its own"),
    preference_pair([1], [2, 3], [4]),
    Example.of([5], [1]),
)


def test_examples_of_a_source_are_taken_as_they_are(read, ledger, tmp_path) -> None:
    kept = read(Given(EXAMPLES), Numbers()).kept
    assert len(kept) == 3
    for index, (example, given) in enumerate(zip(kept, EXAMPLES, strict=False)):
        source = given.source or f"Given[{index}]"
        assert example == attrs.evolve(given, index=index, source=source)
        assert (kept.size(index), kept.weights(index)) == (len(given), weigh([given]))
    assert isinstance(kept[2], Comparison)
    assert [(entry["source"], entry["reason"]) for entry in ledger()] == [("Given[3]", "no supervised token")]
    assert not list((tmp_path / "cache").glob("*/store.json"))


def test_the_length_policy_holds_for_examples_of_a_source(read, ledger) -> None:
    assert tokens(read(Given(EXAMPLES[:2]), Numbers(), max_tokens=4).kept) == [[1, 2, 3]]
    parts = read(Given(EXAMPLES[:2]), Numbers(), max_tokens=4, too_long="truncate_left")
    assert tokens(parts.kept) == [[1, 2, 3], [6, 7, 8, 9]]
    assert (parts.kept.size(1), parts.kept.weights(1)) == (4, weigh([parts.kept[1]]))
    assert [(entry["source"], entry["kind"], entry["tokens"]) for entry in ledger()] == [("of its own", "truncated", 6)]


def test_a_holdout_is_drawn_of_examples_of_a_source(read) -> None:
    source = Given(tuple(Example.of([n, 1], [0, 1]) for n in range(50)))
    parts = read(source, Numbers(), holdout=Holdout(count=10, share=0.0, seed=1))
    kept, held_out = ([example.trunk.tokens[0] for example in part] for part in (parts.kept, parts.held_out))
    assert (len(held_out), sorted(kept + held_out)) == (10, list(range(50)))


def test_a_source_gives_records_or_examples_not_both(read) -> None:
    with pytest.raises(DataError, match=r"Given\[1\] is a dict, and Given\[0\] is an example: one or the other"):
        read(Given((EXAMPLES[0], {"n": [1, 2]})), Numbers())
    with pytest.raises(DataError, match=r"Given\[1\] is a Example; a source gives records"):
        read(Given(({"n": [1, 2]}, EXAMPLES[0])), Numbers())


def write_index(folder: Path, documents: list[list[int]], *, dtype: Any = np.uint16) -> str:
    """A Megatron index of documents of one sequence each, of int32 or uint16 tokens."""
    width, code = np.dtype(dtype).itemsize, {np.int32: 4, np.uint16: 8}[dtype]
    lengths = np.array([len(document) for document in documents], np.int32)
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * width
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(documents), len(documents) + 1)
    ends = np.arange(len(documents) + 1, dtype=np.int64)
    (folder / "corpus.idx").write_bytes(header + lengths.tobytes() + pointers.tobytes() + ends.tobytes())
    (folder / "corpus.bin").write_bytes(b"".join(np.array(document, dtype).tobytes() for document in documents))
    return str(folder / "corpus.idx")


DOCUMENTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [10, 11]]


def test_a_token_index_is_read_in_place(read, ledger, tmp_path) -> None:
    file = write_index(tmp_path, DOCUMENTS)
    parts = read(file, Numbers(), max_tokens=4)
    assert tokens(parts.kept) == [[1, 2, 3], [10, 11]]
    assert [example.source for example in parts.kept] == ["corpus.idx:1", "corpus.idx:4"]
    assert [parts.kept.weights(index)["tokens"] for index in range(2)] == [2.0, 1.0]
    lost = {entry["source"]: entry["tokens"] for entry in ledger()}
    assert lost == {"corpus.idx:2": 1, "corpus.idx:3": 5}
    assert 5 + sum(lost.values()) == sum(map(len, DOCUMENTS))
    assert parts.summary == (
        "train data: 4 rows, 2 examples, 5 tokens, 3 supervised; 2 rows not used (1 no supervised token, 1 too long)"
    )
    assert isinstance(parts.kept[0].trunk.tokens, memoryview)
    assert parts.largest_token == 11
    (kept,) = (tmp_path / "cache").glob("*.in-place")
    assert not list((tmp_path / "cache").glob("*.partial"))
    assert {file.name for file in kept.iterdir()} == {*TYPECODES, "entries.jsonl", "store.json"}  # no tokens


def test_measures_of_a_token_index_are_kept_and_made_anew_for_other_tokens_or_damage(read, tmp_path) -> None:
    def measured() -> tuple[int, set[float]]:
        largest = read(write_index(tmp_path, DOCUMENTS), Numbers(), max_tokens=limit).largest_token
        return largest, {file.stat().st_ctime for file in (tmp_path / "cache").glob("*.in-place/store.json")}

    limit = 0
    first = measured()
    assert first[0] == 11
    assert measured() == first
    (damaged,) = (tmp_path / "cache").glob("*.in-place/sizes")
    damaged.write_bytes(b"damaged" * 3)
    assert measured()[1] != first[1]
    limit = 2
    assert measured()[0] == 11  # of what is kept, here the last two
    DOCUMENTS[3][1] = 12
    try:
        assert measured()[0] == 12  # the .bin has changed, not the .idx
    finally:
        DOCUMENTS[3][1] = 11


@pytest.mark.parametrize(("dtype", "token"), [(np.int32, -1), (np.uint16, 65535)])
def test_ids_that_no_model_has_are_found_before_the_first_step(read, tmp_path, dtype: Any, token: int) -> None:
    from ike_core.known_tokens import check_tokens

    file = write_index(tmp_path, [[1, 2], [3, token, 4]], dtype=dtype)
    if token < 0:
        with pytest.raises(DataError, match=r"corpus.idx holds token -1; ids are 0 or more"):
            read(file, Numbers())
        return
    with pytest.raises(DataError, match=r"corpus.idx:2: the train data hold token 65535, and the model has 512 embedd"):
        check_tokens("train", read(file, Numbers()), 512)


def test_tokens_and_rows_are_not_one_source(read, write, tmp_path) -> None:
    files = [write_index(tmp_path, DOCUMENTS), write("a.jsonl", [{"n": [1, 2]}])]
    with pytest.raises(DataError, match=r"corpus.idx holds tokens and .*a.jsonl holds rows: make them two sources"):
        read(files, Numbers())
