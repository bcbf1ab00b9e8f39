"""Damage of any kind, anywhere: rows, or an error that says where; never a crash, never a row lost in silence."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ike_core import IkeError, Skip
from ike_data.rows import Row, read_rows

TABLE = pa.table(
    {
        "messages": [[{"role": "user", "content": f"é{n}"}, {"role": "assistant", "content": None}] for n in range(60)],
        "n": range(60),
        "score": [n / 7 if n % 3 else None for n in range(60)],
        "kind": pa.array(["a", "b"] * 30).dictionary_encode(),
    }
)
ROWS = [{"n": n, "text": f"é{n * 7919 % 1007}\n"} for n in range(60)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def table(write: Callable[[pa.Table, Any], None]) -> bytes:
    sink = pa.BufferOutputStream()
    write(TABLE, sink)
    return bytes(sink.getvalue())


def stream(rows: pa.Table, sink: pa.BufferOutputStream) -> None:
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=25)


def file(rows: pa.Table, sink: pa.BufferOutputStream) -> None:
    with ipc.new_file(sink, rows.schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows, max_chunksize=25)


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(content)
    return bytes(sink.getvalue())


def written_csv() -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["n", "text"], *(row.values() for row in ROWS)])
    return text.getvalue().encode()


FILES = {
    "a.jsonl": LINES,
    "utf16.jsonl": LINES.decode().encode("utf-16"),
    "a.json": json.dumps(ROWS).encode(),
    "a.csv": written_csv(),
    "a.jsonl.gz": gzip.compress(LINES[:900]) + gzip.compress(LINES[900:]),
    "a.jsonl.xz": lzma.compress(LINES),
    "a.jsonl.bz2": bz2.compress(LINES),
    "a.jsonl.zst": zstd(LINES),
    "sums.parquet": table(lambda rows, sink: pq.write_table(rows, sink, row_group_size=25, write_page_checksum=True)),
    "plain.parquet": table(lambda rows, sink: pq.write_table(rows, sink, compression="none", use_dictionary=False)),
    "stream.arrow": table(stream),
    "file.arrow": table(file),
}
damages = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "drop", "double", "cut"]),
        st.one_of(st.floats(0, 1, exclude_max=True), st.floats(0, 0.05), st.floats(0.95, 1, exclude_max=True)),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=3,
)
fuzzed = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def damaged(content: bytes, damage: list[tuple[str, float, int]]) -> bytes:
    changed = bytearray(content)
    for how, share, number in damage:
        changed = changed or bytearray(b"\n")
        place = int(share * len(changed))
        if how == "cut":
            del changed[max(place, 1) :]
        elif how == "drop":
            del changed[place : place + 1]
        elif how == "double":
            changed[place:place] = changed[place : place + 1]
        else:
            changed[place : place + 1] = bytes([changed[place] ^ (1 << number % 8) if how == "flip" else number])
    return bytes(changed)


def read(path: Path) -> tuple[list[Row], str]:
    rows: list[Row] = []
    said = ""
    try:
        rows.extend(read_rows([str(path)]))
    except IkeError as error:
        said = str(error)
    assert path.name in said or not said
    return rows, said


@pytest.mark.parametrize("name", FILES)
@fuzzed
@given(damage=damages)
def test_damage_gives_rows_or_an_error_and_every_row_has_its_place(tmp_path, name, damage) -> None:
    (tmp_path / name).write_bytes(damaged(FILES[name], damage))
    rows, _ = read(tmp_path / name)
    places = [source.partition(":")[2].partition("[")[0] for source, _ in rows]
    assert [source.partition(":")[0] for source, _ in rows] == [name] * len(rows)
    assert sorted(map(int, places)) == list(map(int, places))


@fuzzed
@given(damage=damages)
def test_every_line_of_a_damaged_file_is_a_row_or_is_refused(tmp_path, damage) -> None:
    """Lines counted apart; those that were not touched are what they were."""
    content = damaged(LINES, damage)
    (tmp_path / "a.jsonl").write_bytes(content)
    rows, error = read(tmp_path / "a.jsonl")
    if error:  # of the first bytes alone
        assert content[:6] != LINES[:6]
        return
    lines = {number: line for number, line in enumerate(content.split(b"\n"), 1) if line.strip(b" \t\r")}
    assert [source for source, _ in rows] == [f"a.jsonl:{number}" for number in lines]
    whole = set(LINES.split(b"\n"))
    for line, (_, row) in zip(lines.values(), rows, strict=True):
        assert row == json.loads(line) if line in whole else isinstance(row, (dict, Skip))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.xz", "a.jsonl.bz2"])
@fuzzed
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_bit_flipped_in_a_stream_with_checksums_is_an_error_or_changes_nothing(tmp_path, name, place, bit) -> None:
    (tmp_path / name).write_bytes(damaged(FILES[name], [("flip", place, bit)]))
    rows, error = read(tmp_path / name)
    if not error:  # a bit of a header that no one reads: the time, the name of the system
        assert [row for _, row in rows] == ROWS


@pytest.mark.parametrize("name", ["sums.parquet", "plain.parquet", "stream.arrow", "file.arrow"])
@fuzzed
@given(damage=damages)
def test_a_table_gives_all_its_rows_or_an_error(tmp_path, name, damage) -> None:
    """Without checksums a value can change unseen, as in any file; the number of rows can't."""
    (tmp_path / name).write_bytes(damaged(FILES[name], damage))
    rows, error = read(tmp_path / name)
    assert error or len(rows) == 60


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records = st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=8)


@fuzzed
@given(
    said=records,
    indent=st.sampled_from([None, 0, 1]),
    escaped=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_what_json_writes_is_what_is_read(tmp_path, said, indent, escaped, encoding) -> None:
    """Against the standard library's own writer and reader, as lines and as an array."""
    lines = "".join(json.dumps(row, ensure_ascii=escaped) + "\n" for row in said)
    (tmp_path / "a.jsonl").write_bytes(lines.encode(encoding))
    (tmp_path / "a.json").write_bytes(json.dumps(said, ensure_ascii=escaped, indent=indent).encode(encoding))
    assert [row for _, row in read_rows([str(tmp_path / "a.jsonl")])] == said
    assert [row for _, row in read_rows([str(tmp_path / "a.json")])] == said


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@fuzzed
@given(said=st.lists(st.tuples(cells, cells), max_size=6), delimiter=st.sampled_from([",", "\t"]))
def test_what_csv_writes_is_what_is_read(tmp_path, said, delimiter) -> None:
    path = tmp_path / ("a.csv" if delimiter == "," else "a.tsv")
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *said])
    assert [tuple(row.values()) for _, row in read_rows([str(path)])] == said
