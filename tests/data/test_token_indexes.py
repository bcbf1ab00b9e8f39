"""Token indexes are read in place: the tokens are numpy's, the documents Megatron's, nothing is copied."""

import pickle
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pytest

from ike_core import DataError, Example
from ike_core.interfaces import Source
from ike_data.rows import read_rows
from ike_data.sources.formats import TOKEN_INDEXES
from ike_data.sources.opening import open_source
from ike_data.sources.paths import find_files

DOCUMENTS = [[[1, 2, 3]], [[4], [5, 6]], [[7, 8, 9, 10]], []]  # of sequences; the last has none
CODES = {"uint8": 1, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}  # DType of Megatron's indexed_dataset.py


def write_megatron(folder: Path, documents: list[list[list[int]]] = DOCUMENTS, type: str = "uint16") -> Path:
    """As `IndexedDatasetBuilder` of Megatron-LM writes it."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * np.dtype(type).itemsize
    ends = np.cumsum([0, *(len(document) for document in documents)], dtype=np.int64)
    header = b"MMIDIDX\0\0" + struct.pack("<Q", 1) + struct.pack("<B", CODES[type])
    header += struct.pack("<Q", len(sequences)) + struct.pack("<Q", len(ends))
    (folder / "corpus.idx").write_bytes(header + lengths.tobytes() + pointers.tobytes() + ends.tobytes())
    (folder / "corpus.bin").write_bytes(b"".join(np.array(sequence, type).tobytes() for sequence in sequences))
    return folder / "corpus.idx"


def write_arrays(folder: Path, type: str = "uint16") -> Path:
    flat = [[token for sequence in document for token in sequence] for document in DOCUMENTS]
    np.save(folder / "corpus.npy", np.concatenate([np.array(document, type) for document in flat]))
    np.save(folder / "corpus.offsets.npy", np.cumsum([0, *map(len, flat)]).astype(np.int64))
    return folder / "corpus.npy"


def refusal(given: object) -> str:
    with pytest.raises(DataError) as raised:
        open_source(given)
    return str(raised.value)


@pytest.mark.parametrize("type", CODES)
def test_a_document_of_megatron_is_an_example_with_a_segment_a_sequence(tmp_path, type) -> None:
    source = open_source(write_megatron(tmp_path, type=type))
    assert len(source) == 4
    read = [source[place] for place in range(4)]
    assert [[list(part.tokens) for part in example.segments] for example in read] == DOCUMENTS
    assert [[list(part.weights) for part in example.segments] for example in read] == [
        [[1.0] * len(sequence) for sequence in document] for document in DOCUMENTS
    ]
    assert [(example.source, example.index) for example in read] == [(f"corpus.idx:{n + 1}", n) for n in range(4)]
    assert [source.size(place) for place in range(4)] == [3, 3, 4, 0]
    assert list(source[1].trunk.tokens) == [4, 5, 6]


@pytest.mark.parametrize("type", [*CODES, "uint32", "uint64", "int8"])
def test_a_document_between_two_offsets_is_an_example(tmp_path, type) -> None:
    source = open_source(write_arrays(tmp_path, type))
    assert [list(source[place].trunk.tokens) for place in range(len(source))] == [
        [1, 2, 3],
        [4, 5, 6],
        [7, 8, 9, 10],
        [],
    ]
    assert [source.size(place) for place in range(4)] == [3, 3, 4, 0]
    assert (source[-2].source, source[-2].index) == ("corpus.npy:3", 2)
    with pytest.raises(IndexError):
        source[4]


@pytest.mark.parametrize("write", [write_megatron, write_arrays])
def test_tokens_are_views_of_the_file_and_a_source_travels_as_its_path(tmp_path, write) -> None:
    source = open_source(write(tmp_path))
    (part,) = source[2].segments
    assert isinstance(part.tokens, memoryview)
    assert part.tokens.readonly
    assert part.tokens.obj is source.tokens.obj  # the mapping itself
    packed = pickle.dumps(source)
    assert len(packed) < 1000
    assert list(pickle.loads(packed)[2].trunk.tokens) == [7, 8, 9, 10]


@pytest.mark.parametrize("named", ["corpus", "corpus.bin", "corpus.idx", "*", "."])
def test_a_megatron_index_is_one_file_whichever_way_it_is_named(tmp_path, named) -> None:
    index = write_megatron(tmp_path)
    (file,) = find_files([str(tmp_path / named)])
    assert (file.path, file.format in TOKEN_INDEXES) == (index, True)


@pytest.mark.parametrize("named", ["corpus.npy", "corpus.offsets.npy", "*", "."])
def test_an_array_is_one_file_whichever_way_it_is_named(tmp_path, named) -> None:
    tokens = write_arrays(tmp_path)
    assert [file.path for file in find_files([str(tmp_path / named)])] == [tokens]


def test_tokens_are_no_rows_and_rows_no_tokens(tmp_path, write) -> None:
    with pytest.raises(DataError, match=r"corpus\.idx: Megatron token index holds tokens, not rows"):
        list(read_rows([str(write_megatron(tmp_path))]))
    assert "a.jsonl: JSON lines holds rows, which a processor reads" in refusal(write("a.jsonl", [{}]))


def damage(path: Path, *, at: int, by: bytes) -> Path:
    content = bytearray(path.read_bytes())
    content[at : at + len(by)] = by
    path.write_bytes(content)
    return path


def test_a_megatron_index_that_can_t_be_true_is_refused(tmp_path) -> None:
    header = 34  # bytes; then 4 lengths of 4, 4 pointers of 8, 5 ends of 8
    index, tokens = tmp_path / "corpus.idx", tmp_path / "corpus.bin"
    for at, by, error in (
        (0, b"X", f"{index}: expected the index of a Megatron token index"),
        (9, b"\2", f"{index}: version 2 and type 8; ike reads version 1"),
        (17, b"\6", f"{index}: version 1 and type 6; ike reads version 1 with tokens of integers"),
        (18, b"\xff" * 7, f"{index}: 122 bytes, and its header says at least "),
        (header + 16 + 32 + 32, b"\5", f"{index}: 0 to 5; it must go from 0 to 4, the number of sequences"),
        (header + 16 + 24, b"\xff", f"{tokens}: 20 bytes, and corpus.idx needs 263: it is cut"),
    ):
        write_megatron(tmp_path)
        assert refusal(damage(index, at=at, by=by)).startswith(error)
    write_megatron(tmp_path)
    tokens.write_bytes(tokens.read_bytes()[:-3])
    assert refusal(index).startswith(f"{tokens}: 17 bytes are no whole number of tokens of 2")
    write_megatron(tmp_path)
    source = open_source(damage(index, at=header, by=b"\xff"))  # the first sequence is 255 tokens long
    with pytest.raises(DataError, match=r"sequence 0 does not lie in the \.bin"):
        source[0]
    tokens.unlink()
    assert refusal(index) == f"{tokens}: No such file or directory"


def test_an_array_that_can_t_be_true_is_refused(tmp_path) -> None:
    path = write_arrays(tmp_path)
    offsets = tmp_path / "corpus.offsets.npy"
    np.save(offsets, np.array([0, 3, 9]))
    assert refusal(path) == f"{offsets}: 0 to 9; it must go from 0 to 10, the number of tokens"
    np.save(offsets, np.array([0, 11, 10]))
    with pytest.raises(DataError, match=r"corpus\.offsets\.npy: document 1 is 0 to 11"):
        open_source(path)[0]
    np.save(offsets, np.array([0.0, 10.0]))
    assert refusal(path) == f"{offsets}: numbers of type '<f8'; it must be one of <i8, <u8"
    np.save(path, np.zeros((2, 5), np.int32))
    assert refusal(path).startswith(f"{path}: expected an array of one dimension")
    path.write_bytes(path.read_bytes()[:40])
    assert refusal(path).startswith(f"{path}: expected an array of one dimension, and can't read its header")
    path.write_bytes(b"")
    assert refusal(path) == f"{path}: expected an array that numpy.save wrote"
    offsets.unlink()
    assert refusal(path).startswith(f"{path}: an array of tokens needs corpus.offsets.npy beside it")


def test_tokens_without_an_index_are_no_kind_of_file(tmp_path) -> None:
    array("H", [1, 2]).tofile((tmp_path / "train.bin").open("wb"))
    assert "train.bin: not a kind of file that ike reads" in refusal(tmp_path / "train.bin")


@attrs.frozen
class Squares:
    """Rows that are made up: a user's own source in three lines."""

    def __len__(self) -> int:
        return 10**12

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"square": index**2}


def test_a_user_s_own_source_is_taken_as_it_is() -> None:
    source = open_source(Squares())
    assert isinstance(source, Source)
    assert source[10**9] == {"square": 10**18}


class Stream:
    def __iter__(self) -> Iterator[Example]:
        yield Example.of([1], [1.0])


def test_a_stream_is_refused_with_the_way_out() -> None:
    assert refusal(Stream()).startswith("Stream is no source: it has no __len__ and __getitem__. ike asks for any ")
    assert refusal(iter([1])).endswith(
        "have `ike-data prepare` read it once, with the same settings, or write its rows to a file (JSON lines or "
        "Parquet) and name that"
    )
    assert "set is no source: it has no __getitem__" in refusal({1})
