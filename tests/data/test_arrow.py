"""Parquet and Arrow: rows as pyarrow has them, in the words of JSON; damage is found, and names the row."""

import datetime
import decimal
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from ike_core import DataError, Skip
from ike_data.rows import Row, read_rows


def rows(*files: str) -> list[Row]:
    return list(read_rows(files))


def write_parquet(table: pa.Table, path: Path, **options) -> None:
    pq.write_table(table, path, row_group_size=500, **options)


def write_file(table: pa.Table, path: Path) -> None:
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


def write_stream(table: pa.Table, path: Path) -> None:
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


WRITERS = {
    "a.parquet": write_parquet,
    "b.arrow": write_file,
    "c.arrow": write_stream,
    "d.feather": feather.write_feather,
}
each_format = pytest.mark.parametrize("name", WRITERS)
CHATS = pa.table(
    {
        "messages": [
            [{"role": "user", "content": f"é{n}"}, {"role": "assistant", "content": None}] for n in range(2000)
        ],
        "n": range(2000),
        "score": [n / 7 if n % 3 else None for n in range(2000)],
    }
)


@each_format
def test_rows_are_those_of_pyarrow_named_by_their_place(tmp_path, name) -> None:
    WRITERS[name](CHATS, tmp_path / name)
    read = rows(str(tmp_path / name))
    assert [row for _, row in read] == CHATS.to_pylist()
    assert [source for source, _ in read] == [f"{name}:{number}" for number in range(1, 2001)]


@each_format
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_packed_table_is_read_too(tmp_path, name, suffix) -> None:
    WRITERS[name](CHATS, tmp_path / name)
    with pa.CompressedOutputStream(
        str(tmp_path / f"{name}{suffix}"), {".gz": "gzip", ".zst": "zstd"}[suffix]
    ) as packed:
        packed.write((tmp_path / name).read_bytes())
    read = rows(str(tmp_path / f"{name}{suffix}"))
    assert [row for _, row in read] == CHATS.to_pylist()
    assert read[-1][0] == f"{name}{suffix}:2000"


day = datetime.datetime(2026, 11, 30, 23, 59, 58, 123456)
VALUES = {
    "null": (pa.nulls(1), None),
    "boolean": (pa.array([True]), True),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
    "half": (pa.array([1.5], pa.float16()), 1.5),
    "large text": (pa.array(["é"], pa.large_string()), "é"),
    "text view": (pa.array(["é"], pa.string_view()), "é"),
    "dictionary": (pa.array(["é"]).dictionary_encode(), "é"),
    "bytes of text": (pa.array(["é".encode()]), "é"),
    "bytes of one length": (pa.array([b"abc"], pa.binary(3)), "abc"),
    "timestamp": (pa.array([day]), "2026-11-30 23:59:58.123456"),
    "timestamp of nanoseconds": (pa.array([1], pa.timestamp("ns")), "1970-01-01 00:00:00.000000001"),
    "timestamp of a zone": (pa.array([day], pa.timestamp("us", "UTC")), "2026-11-30 23:59:58.123456Z"),
    "date": (pa.array([day.date()]), "2026-11-30"),
    "time": (pa.array([day.time()]), "23:59:58.123456"),
    "decimal": (pa.array([decimal.Decimal("0.10")]), 0.1),
    "long decimal": (pa.array([decimal.Decimal("1234567890123456.78")]), "1234567890123456.78"),
    "large list": (pa.array([[1, None]], pa.large_list(pa.int8())), [1, None]),
    "list of one length": (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [1, 2]),
    "list view": (pa.array([[1]], pa.list_view(pa.int8())), [1]),
    "map": (pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int8())), {"a": 1, "b": None}),
    "nested": (
        pa.array([[{"at": day, "label": {"x": decimal.Decimal("1.5")}}]]),
        [{"at": "2026-11-30 23:59:58.123456", "label": {"x": 1.5}}],
    ),
    "list of dictionary": (pa.array([["é"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), ["é"]),
    "extension": (pa.array(['{"a":1}'], pa.json_()), '{"a":1}'),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_the_nearest_word_of_json(tmp_path, kind) -> None:
    column, expected = VALUES[kind]
    write_stream(pa.table({"x": pa.concat_arrays([column, pa.nulls(1, column.type)])}), tmp_path / "a.arrow")
    read = [row for _, row in rows(str(tmp_path / "a.arrow"))]
    assert read == [{"x": expected}, {"x": None}]
    assert json.loads(json.dumps(read)) == read


@pytest.mark.parametrize("type", [pa.duration("s"), pa.month_day_nano_interval()])
def test_a_type_without_a_word_in_json_is_refused_by_column(tmp_path, type) -> None:
    write_stream(pa.table({"a": [1], "x": pa.nulls(1, type)}), tmp_path / "a.arrow")
    with pytest.raises(DataError, match=r"a\.arrow: column 'x' is of type \w+.*, for which JSON has no word"):
        rows(str(tmp_path / "a.arrow"))


def test_two_columns_of_one_name_are_refused(tmp_path) -> None:
    write_stream(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), tmp_path / "a.arrow")
    with pytest.raises(DataError, match=r"a\.arrow: two columns are called 'x'"):
        rows(str(tmp_path / "a.arrow"))


BAD = {
    "a number that is not finite: nan in column 'x'": pa.array([1.0, float("nan"), 2.0]),
    "a number that is not finite: inf in column 'x'": pa.array([[{"y": 1.0}], [{"y": float("inf")}], []]),
    "can't be read: column 'x': Invalid UTF8 payload": pa.array([b"a", b"\xff\xd8\xff", b"b"]),  # an image, say
    "can't be read: Converting to Python dictionary": pa.array(
        [[], [("k", 1), ("k", 2)], []], pa.map_(pa.string(), pa.int8())
    ),
}


@pytest.mark.parametrize("reason", BAD)
@pytest.mark.parametrize("name", ["a.parquet", "c.arrow"])
def test_a_row_whose_value_json_can_t_say_is_refused_alone(tmp_path, name, reason) -> None:
    WRITERS[name](pa.table({"n": [0, 1, 2], "x": BAD[reason]}), tmp_path / name)
    read = rows(str(tmp_path / name))
    assert [isinstance(row, Skip) for _, row in read] == [False, True, False]
    assert read[1][1].source == f"{name}:2"
    assert read[1][1].reason.startswith(reason)


# The format says that text is UTF-8; arrow's constructor of arrays does not look.
NOT_UTF_8 = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffb")]
)


def test_text_that_is_not_utf_8_costs_its_row_in_parquet_and_is_damage_in_arrow(tmp_path) -> None:
    """Writers of Parquet store what they are given; Arrow's own check it."""
    write_parquet(pa.table({"x": NOT_UTF_8}), tmp_path / "a.parquet")
    read = rows(str(tmp_path / "a.parquet"))
    assert [row for _, row in read[::2]] == [{"x": "a"}, {"x": "b"}]
    assert read[1][1].reason.startswith("can't be read: 'utf-8' codec can't decode byte 0xff")
    write_stream(pa.table({"x": NOT_UTF_8}), tmp_path / "a.arrow")
    with pytest.raises(
        DataError, match=r"a\.arrow:1: can't be read from this row on: .*Invalid UTF8 sequence at string"
    ):
        rows(str(tmp_path / "a.arrow"))


def test_a_column_that_is_null_in_one_file_is_not_cast_in_the_next(tmp_path) -> None:
    """B75: three rows without a value, and one with; in both orders."""
    write_parquet(pa.table({"system": pa.nulls(3)}), tmp_path / "nulls.parquet")
    write_parquet(pa.table({"system": ["S"]}), tmp_path / "text.parquet")
    nulls, text = str(tmp_path / "nulls.parquet"), str(tmp_path / "text.parquet")
    assert [row["system"] for _, row in rows(nulls, text)] == [None, None, None, "S"]
    assert [row["system"] for _, row in rows(text, nulls)] == ["S", None, None, None]


@each_format
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_cut_file_is_an_error(tmp_path, name, share) -> None:
    WRITERS[name](CHATS, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError, match=name):
        rows(str(tmp_path / name))


def test_a_stream_cut_between_two_batches_is_an_error(tmp_path) -> None:
    """Arrow itself takes that for the end of the stream: the spec allows a writer to just close the file."""
    write_stream(CHATS, tmp_path / "a.arrow")
    whole = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(whole[:-8])
    with ipc.open_stream(tmp_path / "a.arrow") as reader:
        assert reader.read_all().num_rows == 2000  # nothing to be seen
    with pytest.raises(DataError, match=r"a\.arrow:1: can't be read from this row on: the stream has no end mark"):
        rows(str(tmp_path / "a.arrow"))


def test_a_damaged_page_is_found_by_its_checksum(tmp_path) -> None:
    write_parquet(CHATS, tmp_path / "a.parquet", compression="none", write_page_checksum=True, use_dictionary=False)
    damaged = bytearray((tmp_path / "a.parquet").read_bytes())
    damaged[damaged.index("é1700".encode()) + 4] ^= 1
    (tmp_path / "a.parquet").write_bytes(damaged)
    read: list[Row] = []
    with pytest.raises(DataError, match=r"a\.parquet:\d+: can't be read from this row on: .*CRC checksum"):
        read.extend(read_rows([str(tmp_path / "a.parquet")]))
    assert [row for _, row in read] == CHATS.to_pylist()[: len(read)]


def test_fewer_rows_than_the_file_says_are_an_error(tmp_path) -> None:
    """60 is written as 0x16 0x78 (thrift: i64, zigzag), first for the file and then for its one row group."""
    write_parquet(pa.table({"n": range(60)}), tmp_path / "a.parquet", store_schema=False)
    content = (tmp_path / "a.parquet").read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    says = content.index(b"\x16\x78", footer) + 1
    (tmp_path / "a.parquet").write_bytes(content[:says] + b"\x7a" + content[says + 1 :])
    read: list[Row] = []
    with pytest.raises(DataError, match=r"a\.parquet: it says that it has 61 rows, and 60 can be read"):
        read.extend(read_rows([str(tmp_path / "a.parquet")]))
    assert len(read) == 60
