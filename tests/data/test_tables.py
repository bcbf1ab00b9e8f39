"""CSV, TSV and plain text: a row is what the file says, or it is refused by line; nothing is guessed."""

import csv
import io

import pytest

from ike_core import DataError, Skip
from ike_data.rows import Row, read_rows


def rows(file: str) -> list[Row]:
    return list(read_rows([file]))


def test_a_cell_may_hold_delimiters_quotes_and_line_ends(write) -> None:
    """Written by Python's own writer; a row is named by the line it starts on, counted by hand."""
    said = [
        ["a,b", 'say "hi"'],
        ["two\nlines", "x"],
        ["", "007"],
        ["é\u2028\x85", " spaced "],
        ["three\r\n\nlines", "y"],
        ["z", "end"],
    ]
    written = io.StringIO(newline="")
    csv.writer(written).writerows([["prompt", "response"], *said])
    read = rows(write("a.csv", written.getvalue().encode()))
    assert [list(row.values()) for _, row in read] == said
    assert [source for source, _ in read] == [f"a.csv:{line}" for line in (2, 3, 5, 6, 7, 10)]
    assert {tuple(row) for _, row in read} == {("prompt", "response")}


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n\n3,4\n",
        b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4\r\n",
        "\ufeffa,b\n1,2\n\n3,4".encode("utf-16-le"),
        b'"a","b"\n"1","2"\n\n"3","4"',
    ],
)
def test_a_table_is_the_same_however_it_is_written(write, content) -> None:
    assert rows(write("a.csv", content)) == [("a.csv:2", {"a": "1", "b": "2"}), ("a.csv:4", {"a": "3", "b": "4"})]


def test_tabs_separate_what_is_named_tsv(write) -> None:
    assert rows(write("a.tsv", b"a\tb\n1,5\t2;3\n")) == [("a.tsv:2", {"a": "1,5", "b": "2;3"})]


def test_one_column_is_a_table_too(write) -> None:
    assert rows(write("a.csv", b"text\nhello; you\n")) == [("a.csv:2", {"text": "hello; you"})]


def test_a_row_of_another_number_of_cells_is_refused_alone(write) -> None:
    read = rows(write("a.csv", b'a,b\n1,2\n1,2,3\n"1\n",2\n1\n3,4\n'))
    assert [source for source, row in read if isinstance(row, Skip)] == ["a.csv:3", "a.csv:6"]
    assert read[1][1].reason == "another number of cells: 3, and the header has 2"
    assert [row for _, row in read if not isinstance(row, Skip)] == [
        {"a": "1", "b": "2"},
        {"a": "1\n", "b": "2"},
        {"a": "3", "b": "4"},
    ]


def test_a_row_that_is_not_utf_8_is_refused_alone(write) -> None:
    """A file that a spreadsheet wrote in its own encoding: every row with an umlaut is refused, by line and byte."""
    read = rows(write("a.csv", "a,b\nx,gut\ny,schön\nz,é\n".encode("latin-1")))
    assert read[0][1] == {"a": "x", "b": "gut"}
    assert [row.reason for _, row in read[1:]] == ["not UTF-8: byte 4 of column 'b'", "not UTF-8: byte 1 of column 'b'"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (
            b'a,b\n1,2\n"x,y\n1,2\n',
            "a.csv:3: a quote opens in this row and is not closed by the end of the file (line 4)",
        ),
        (b'a,b\n"he said "hi", you",2\n', "a.csv:2: a quote closes inside a cell, in this row at line 2"),
        (b"a,b\n1,2\r3,4\n", "a.csv:2: a carriage return inside a cell that is not quoted"),
        (b"a,a\n1,2\n", "a.csv:1: the header names 'a' twice"),
        (b"a;b;c\n1;2;3\n", "a.csv:1: the header is one column, 'a;b;c': semicolons seem to separate its names"),
        (b"a|b\n1|2\n", "a.csv:1: the header is one column, 'a|b': bars seem"),
        (b"a\tb\n1\t2\n", "a.csv:1: the header is one column, 'a\\tb': tabs seem"),
        (b"\xe9,b\n", "a.csv:1: the header is not UTF-8"),
    ],
)
def test_a_table_that_can_be_read_two_ways_is_not_read(write, content, error) -> None:
    with pytest.raises(DataError) as raised:
        rows(write("a.csv", content))
    assert str(raised.value).startswith(error)


def test_a_quote_that_never_closes_does_not_take_the_file_into_memory(write, monkeypatch) -> None:
    monkeypatch.setattr("ike_data.sources.limits.LONGEST_ROW", 1000)
    with pytest.raises(DataError, match=r"a\.csv:3: the row that starts here is longer than"):
        rows(write("a.csv", b'a,b\n1,2\n"x,y\n' + b"1,2\n" * 10_000))


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.jsonl", b'{"n":1}\n{"n":' + b"1" * 900_000, "a.jsonl:2: the line that starts here"),
        ("a.json", b'[{"n":1},\n{"n":[' + b"[]," * 300_000, "a.json:2: the element that starts here"),
        ("a.json", b'[{"n":1},\n{"n":"' + b"\\n" * 450_000, "a.json:2: the element that starts here"),
    ],
)
def test_what_never_ends_is_not_taken_into_memory(write, monkeypatch, name, content, what) -> None:
    monkeypatch.setattr("ike_data.sources.limits.LONGEST_ROW", 1000)
    read: list[Row] = []
    with pytest.raises(DataError) as raised:
        read.extend(read_rows([write(name, content)]))
    assert str(raised.value).startswith(what)
    assert read == [(f"{name}:1", {"n": 1})]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("one\n\ntwo é\n".encode(), "one\n\ntwo é\n"),
        ("\ufeffone\r\ntwo\r\n".encode(), "one\ntwo\n"),
        ("\ufeffone\ntwo".encode("utf-16-be"), "one\ntwo"),
        (b"", ""),
        (b" <html> is a tag", " <html> is a tag"),
    ],
)
def test_a_text_file_is_one_document(write, content, text) -> None:
    assert rows(write("a.txt", content)) == [("a.txt:1", {"text": text})]


def test_a_text_that_is_not_utf_8_is_refused_by_line_and_byte(write) -> None:
    ((source, row),) = rows(write("a.txt", b"one\ntw\xf6\n"))
    assert (source, row.reason) == ("a.txt:1", "not UTF-8: invalid start byte at byte 3 of line 2")


def test_a_text_too_long_for_one_document_is_refused_with_the_way_out(write, monkeypatch) -> None:
    monkeypatch.setattr("ike_data.sources.text.LONGEST_ROW", 1000)
    with pytest.raises(DataError, match=r'write it as JSON lines, {"text": \.\.\.} a document'):
        rows(write("a.txt", b"x" * 1001))
