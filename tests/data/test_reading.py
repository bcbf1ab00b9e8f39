"""Files as people have them: each row is read right, or refused by file and line."""

import gzip
import json

import pytest

from ike_core import DataError, Skip
from ike_data import read_records
from ike_data.rows import Row, read_rows


def rows(*files: str, limit: int = 0) -> list[Row]:
    return list(read_rows(files, limit=limit))


def reasons(file: str) -> dict[str, str]:
    return {source: row.reason for source, row in rows(file) if isinstance(row, Skip)}


def test_blank_lines_are_no_rows_but_count(write) -> None:
    file = write("a.jsonl", b'{"text":"a"}\n\n   \n{"text":"b"}\n')
    assert rows(file) == [("a.jsonl:1", {"text": "a"}), ("a.jsonl:4", {"text": "b"})]


LF = b'{"text":"a"}\n{"text":"b"}\n'
SAME = {
    "crlf": LF.replace(b"\n", b"\r\n"),
    "byte-order mark and crlf": b"\xef\xbb\xbf" + LF.replace(b"\n", b"\r\n"),
    "byte-order mark on a later line, as cat leaves it": LF.replace(b"\n{", b"\n\xef\xbb\xbf{"),
    "utf-16, little end first": LF.decode().encode("utf-16-le").join([b"\xff\xfe", b""]),
    "utf-16, big end first": LF.decode().encode("utf-16-be").join([b"\xfe\xff", b""]),
    "no newline at the end": LF.rstrip(),
}


@pytest.mark.parametrize("content", SAME.values(), ids=SAME)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_the_same_rows_come_out_of_every_way_to_write_them(write, content, packed) -> None:
    name = "a.jsonl.gz" if packed else "a.jsonl"
    file = write(name, gzip.compress(content) if packed else content)
    assert rows(file) == [(f"{name}:1", {"text": "a"}), (f"{name}:2", {"text": "b"})]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_byte_lost_from_utf_16_is_found_at_the_next_line_end(write, encoding) -> None:
    """All behind it would decode, to other characters; with a byte too much later on even the file's end would fit."""
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}[encoding]
    content = mark + ('{"text":"abc"}\n' * 4).encode(encoding)
    lost = 2 + 2 * (15 + 10)  # a byte of the second line's `a`
    read: list[Row] = []
    with pytest.raises(
        DataError, match=r"a\.jsonl:2: a line end at odd bytes \(\d+ of the file\): a byte before it was lost"
    ):
        read.extend(read_rows([write("a.jsonl", content[:lost] + content[lost + 1 : -20] + b" " + content[-20:])]))
    assert read == [("a.jsonl:1", {"text": "abc"})]


def test_gzip_members_that_follow_one_another_are_one_text(write) -> None:
    file = write("a.jsonl.gz", gzip.compress(LF[:20]) + gzip.compress(LF[20:]))
    assert [source for source, _ in rows(file)] == ["a.jsonl.gz:1", "a.jsonl.gz:2"]


def test_a_cut_gzip_stream_is_an_error_with_the_line(write) -> None:
    file = write("a.jsonl.gz", gzip.compress(LF * 1000)[:-20])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz:\d+: the gzip stream breaks here"):
        rows(file)


def test_only_a_newline_ends_a_line(write) -> None:
    text = "a\u2028b\u2029c\x85d"
    file = write("a.jsonl", json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
    assert rows(file) == [("a.jsonl:1", {"text": text})]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_refused_with_its_line(write, number) -> None:
    row = '{"chosen":"a","rejected":"b","margin":' + number + "}"
    lines, array = write("a.jsonl", f"{{}}\n{row}\n".encode()), write("b.json", f"[{{}},\n{row}]".encode())
    assert list(reasons(lines)) == ["a.jsonl:2"]
    assert list(reasons(array)) == ["b.json:2"]


BAD = {
    b'{"a":': "not valid JSON: ",
    b'{"a":"\xff"}': "not UTF-8: invalid start byte at byte 7",
    rb'{"a":"\ud83d"}': "not valid JSON: no low surrogate",
    b'{"a":1}{"b":2}': "not valid JSON: unexpected content after document at column 8",
    b"[1]": "a row must be an object: this one is an array",
    b'"text"': "a row must be an object: this one is a string",
    b"null": "a row must be an object: this one is null",
    b"true": "a row must be an object: this one is a boolean",
}


def test_a_bad_line_is_refused_alone(write) -> None:
    file = write("a.jsonl", b"".join(b'{"n":1}\n' + line + b"\n" for line in BAD))
    read = rows(file)
    assert len(read) == 2 * len(BAD)
    assert [row for _, row in read[::2]] == [{"n": 1}] * len(BAD)
    for place, ((source, row), reason) in enumerate(zip(read[1::2], BAD.values(), strict=True)):
        assert (source, row.reason[: len(reason)]) == (f"a.jsonl:{2 * place + 2}", reason)


def test_the_elements_of_an_array_are_named_by_the_line_they_start_on(write) -> None:
    file = write("a.json", b'\n[ {"n":\n1}, {"n":2},\n\n{"n":3}, 4 ]\n')
    assert rows(file) == [
        ("a.json:2", {"n": 1}),
        ("a.json:3", {"n": 2}),
        ("a.json:5", {"n": 3}),
        ("a.json:5[3]", Skip("a row must be an object: this one is a number", "a.json:5[3]")),
    ]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'[{"n":1},\n{"n":2}', "a.json:2: the array breaks at column 8: expected ',' or ']'"),
        (b'[{"n":1},\n{"n":2]', "a.json:2: the array breaks at column 8: expected ',' or ']'"),
        (b'[{"n":1},\n{"n":"2]', "a.json:2: the array breaks at column 9: it ends inside the element of line 2"),
        (b'[{"n":1},\n]', "a.json:2: the array breaks at column 1: expected an element"),
        (b'[{"n":1}}]', "a.json:1: the array breaks at column 9: expected ',' or ']'"),
        (b'[{"n":1}]\n{"n":2}', "a.json:2: the array breaks at column 1: something follows the array"),
        (b'{\n "n": 1\n}', "a.json:1: expected an array of objects or one object a line; not valid JSON"),
        ('{"n":1}'.encode("utf-16-le"), "a.json:1: byte 2 is 0: neither UTF-8 nor UTF-16 with a byte-order mark"),
        ('{"n":1}'.encode("utf-32"), "a.json:1: UTF-32: neither UTF-8 nor UTF-16 with a byte-order mark"),
        ('{"n":1}\n{"n":2}'.encode("utf-16")[:-1], "a.json:2: not utf-16-le: truncated data at byte 31 of the file"),
    ],
)
def test_a_file_that_can_t_be_read_on_says_where(write, content, error) -> None:
    with pytest.raises(DataError) as raised:
        rows(write("a.json", content))
    assert str(raised.value).startswith(error)


def test_a_json_file_may_hold_a_row_a_line(write) -> None:
    assert [row for _, row in rows(write("a.json", LF))] == [{"text": "a"}, {"text": "b"}]


def test_an_empty_file_has_no_rows(write) -> None:
    assert rows(write("a.jsonl", b""), write("b.json", b"[]"), write("c.json", b"")) == []


def test_nulls_stay_null_and_texts_stay_texts_in_any_order(write) -> None:
    nulls, text = write("1.jsonl", [{"system": None}] * 3), write("2.jsonl", [{"system": "S"}])
    assert [row["system"] for _, row in rows(nulls, text)] == [None, None, None, "S"]
    assert [row["system"] for _, row in rows(text, nulls)] == ["S", None, None, None]


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        (b'{"n":}', "not valid JSON: "),
        (b'{"n":"\xff"}', "not UTF-8: invalid start byte at byte 7"),
        (b"{ 1 2 }", "not valid JSON: "),
        (b"{]", "not valid JSON: "),
        (b"[" * 100_000 + b"]" * 100_000, "not valid JSON: "),
    ],
)
def test_a_bad_element_is_refused_alone(write, element, reason) -> None:
    good, bad, after = rows(write("a.json", b'[{"n":1},\n' + element + b',\n{"n":"],["}]'))
    assert (good, after[1]) == (("a.json:1", {"n": 1}), {"n": "],["})
    assert (bad[0], bad[1].reason[: len(reason)]) == ("a.json:2", reason)


def test_an_array_is_the_same_wherever_a_piece_of_it_ends(write, monkeypatch) -> None:
    """An independent reader, json, says what it holds; pieces of 1, 2, 3 ... bytes cut every token somewhere."""
    elements = [{"a": 'q"\\\\"\\'}, {"b": ["]", {"c": "}{,"}], "d": "é\U0001f600"}, {}, {"e": "\\" * 7, "f": [[], {}]}]
    text = json.dumps(elements, indent=1, ensure_ascii=False)
    for size in (1, 2, 3, 5, 7, 1000):
        monkeypatch.setattr("ike_data.sources.compressed.PIECE", size)
        read = rows(write("a.json", text.encode()))
        assert [row for _, row in read] == json.loads(text)
        starts = [number for number, line in enumerate(text.split("\n"), 1) if line.startswith(" {")]
        assert [source for source, _ in read] == [f"a.json:{line}" for line in starts]


def test_a_limit_is_of_rows_over_all_files(write) -> None:
    a, b = write("a.jsonl", [{"n": 1}, {"n": 2}]), write("b.jsonl", [{"n": 3}, {"n": 4}])
    assert [row["n"] for _, row in rows(a, b, limit=3)] == [1, 2, 3]


def test_files_of_one_name_are_told_apart(write) -> None:
    a, b = write("x/a.jsonl", [{"n": 1}]), write("y/a.jsonl", [{"n": 2}])
    assert [source for source, _ in rows(a, b)] == ["x/a.jsonl:1", "y/a.jsonl:1"]


def test_a_glob_is_read_in_the_order_of_names_and_a_file_once(write, tmp_path) -> None:
    for name in ("b", "a", "c"):
        write(f"{name}.jsonl", [{"name": name}])
    read = rows(str(tmp_path / "c.jsonl"), str(tmp_path / "*.jsonl"))
    assert [row["name"] for _, row in read] == ["c", "a", "b"]


def test_a_name_may_look_like_a_glob(write) -> None:
    assert len(rows(write("a[1].jsonl", [{"n": 1}]))) == 1


def test_a_missing_file_names_the_path_tried_and_what_is_near(write, tmp_path) -> None:
    write("data/train.jsonl", [{}])
    for missing, near in (
        (tmp_path / "data/trian.jsonl", f"; {tmp_path / 'data'} has train.jsonl"),
        (tmp_path / "dta/train.jsonl", f"; {tmp_path} has data"),
        (tmp_path / "elsewhere/train.jsonl", f"; the folder {tmp_path} has no elsewhere"),
    ):
        with pytest.raises(DataError) as raised:
            rows(str(missing))
        assert str(raised.value) == f"{missing} does not exist{near}"
    with pytest.raises(DataError) as raised:
        rows(str(tmp_path / "*.json"))
    assert str(raised.value).startswith(f"no file matches {tmp_path / '*.json'}")


def test_files_of_other_kinds_are_refused_by_name(write) -> None:
    with pytest.raises(DataError, match=r"a\.xlsx: not a kind of file that ike reads \(\.jsonl, "):
        rows(write("a.xlsx", b"PK"))


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (
            "a.jsonl",
            b"PAR1....PAR1",
            "expected JSON lines, and its first bytes are those of a Parquet file; name it .par",
        ),
        ("a.csv", b"ARROW1\0\0", "expected CSV, and its first bytes are those of an Arrow file; name it .arrow"),
        ("a.txt", b"PK\x03\x04", "expected text, and its first bytes are those of a zip archive; unpack it"),
        ("a.parquet", b'{"a":1}\n', 'expected Parquet, and it begins with `{"a":1}.`'),
        ("a.parquet", b"", "expected Parquet, and it is empty"),
        ("a.arrow", b"a,b\n", "expected Arrow, and it begins with `a,b.`"),
        ("a.arrow", b"PAR1....PAR1", "expected Arrow, and its first bytes are those of a Parquet file"),
        ("a.feather", b"FEA1....", "Feather of version 1"),
        ("a.parquet", b"<html>", "expected Parquet, and it is a page of HTML (`<html>`)"),
        ("a.json", b"\n <!doctype HTML>", "expected JSON, and it is a page of HTML"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "expected JSON lines, and its first bytes are "),
        ("a.jsonl.gz", b'{"a":1}\n', "named .gz (gzip), and it is not compressed so"),
        (
            "a.jsonl.zst",
            gzip.compress(b'{"a":1}\n', mtime=0),
            "named .zst (zstd), and its first bytes are those of gzip",
        ),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(write, name, content, error) -> None:
    file = write(name, content)
    with pytest.raises(DataError) as raised:
        rows(file)
    assert str(raised.value).startswith(f"{file}: {error}")


def test_records_are_all_readable_or_none_is_given(write) -> None:
    good = write("a.jsonl", [{"n": 1}, {"n": 2}])
    assert list(read_records([good], limit=1)) == [("a.jsonl:1", {"n": 1})]
    bad = write("b.jsonl", b'{"n":1}\n{\n[]\n')
    with pytest.raises(DataError) as raised:
        next(iter(read_records([good, bad])))
    lines = str(raised.value).split("\n")
    assert lines[0] == "2 rows can't be read; mend or remove them:"
    assert lines[1].startswith("  b.jsonl:2: not valid JSON: ")
    assert lines[2] == "  b.jsonl:3: a row must be an object: this one is an array"
