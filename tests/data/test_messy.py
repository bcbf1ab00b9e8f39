"""The files of ../shared/data as people have them: read right, or refused clearly, each for its reason."""

import gzip
import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from ike_core import DataError, Skip
from ike_data import ChatProcessor, InstructionProcessor
from ike_data.rows import read_rows

# Every file of the folder: how many rows it gives (lines that are not blank, counted by grep; 27's are pyarrow's own
# num_rows), which of them are refused and why, and the error that its reading ends with.
MESSY = {
    # a byte-order mark, and lines that end in CRLF: neither is content
    "01_bom_crlf.jsonl": (60, {}, ""),
    # the mark says which UTF-16 it is
    "03_utf16.jsonl": (40, {}, ""),
    # a byte was lost in the middle of a character: that line is lost, and no other
    "05_truncated_multibyte_row7.jsonl": (40, {8: "not UTF-8: invalid continuation byte at byte 61"}, ""),
    "07_kto.jsonl.gz": (60, {}, ""),
    # two gzip members, as `cat a.gz b.gz` makes them: one text
    "09_two_members.jsonl.gz": (60, {}, ""),
    # characters that some readers end a line at
    "11_u2028_nel_inside_strings.jsonl": (10, {}, ""),
    # objects one after another on one line: none of them is a row of its own, so the line is refused whole
    "13_concatenated_no_newline.jsonl": (
        1,
        {1: "not valid JSON: unexpected content after document at column 1683"},
        "",
    ),
    # half an emoji is no text and can't be encoded; a NUL is a character as any other
    "15_lone_surrogate.jsonl": (2, {1: "not valid JSON: no low surrogate in string at column 27"}, ""),
    # what is an object is for the chat processor to refuse: test_bad_conversations_are_refused below
    "17_bad_chat_rows.jsonl": (25, dict.fromkeys((22, 23, 24, 25), "a row must be an object"), ""),
    # no rows is an error for who needs some: test_a_file_without_rows_is_an_error
    "19_empty.jsonl": (0, {}, ""),
    "21_empty_list.json": (0, {}, ""),
    # not a line with broken JSON in it, but not JSON at all
    "23_html_error_page.jsonl": (0, {}, "expected JSON lines, and it is a page of HTML (`<!DOCTYPE html><html>"),
    # rows of several shapes are rows: test_a_file_of_mixed_shapes
    "25_mixed_schema.jsonl": (5, {}, ""),
    # a column without a value has no type; its values are null
    "27_null_column.parquet": (3, {}, ""),
    # Parquet's table of contents stands at its end: without it there is no row
    "29_truncated.parquet": (0, {}, "a Parquet file without its end (271,597 bytes): it was cut"),
    # by commas it is one column; what else separates is never guessed
    "31_semicolon.csv": (0, {}, "1: the header is one column, 'prompt;response': semicolons seem to separate"),
    # rows of 4 cells and of 1 are refused alone; a quote that never closes holds the rest of the file, `x,y` included
    "33_extra_commas.csv": (
        2,
        {2: "another number of cells: 4, and the header has 2", 3: "another number of cells: 1, and the header has 2"},
        "4: a quote opens in this row and is not closed by the end of the file (line 5)",
    ),
}


def test_the_table_has_every_file(shared_data) -> None:
    assert sorted(MESSY) == sorted(path.name for path in (shared_data / "messy").iterdir())


@pytest.mark.parametrize("name", MESSY)
def test_every_row_is_read_or_refused_by_line(shared_data, name) -> None:
    count, bad, error = MESSY[name]
    rows, raised = [], ""
    try:
        rows.extend(read_rows([str(shared_data / "messy" / name)]))  # extend keeps what came before an error
    except DataError as caught:
        raised = str(caught)
    assert len(rows) == count
    refused = {source: row.reason for source, row in rows if isinstance(row, Skip)}
    assert list(refused) == [f"{name}:{line}" for line in bad]
    for line, reason in bad.items():
        assert refused[f"{name}:{line}"].startswith(reason)
    assert error in raised
    assert name in raised or not error
    assert bool(error) == bool(raised)


def test_a_null_column_and_its_neighbours_are_what_arrow_says(shared_data) -> None:
    path = shared_data / "messy/27_null_column.parquet"
    assert [row for _, row in read_rows([str(path)])] == pq.read_table(path).to_pylist()


def test_rows_before_a_broken_one_are_in_the_ledger_when_the_file_is_refused(
    shared_data, fix_tok, read, ledger
) -> None:
    with pytest.raises(DataError, match=r"33_extra_commas\.csv:4: a quote opens"):
        read(str(shared_data / "messy/33_extra_commas.csv"), InstructionProcessor(fix_tok))
    assert [entry["source"] for entry in ledger()] == ["33_extra_commas.csv:2", "33_extra_commas.csv:3"]


def test_no_mark_of_an_encoding_gets_into_a_row(shared_data) -> None:
    files = [str(shared_data / "messy" / name) for name in ("01_bom_crlf.jsonl", "03_utf16.jsonl")]
    assert {tuple(row) for _, row in read_rows(files)} == {("instruction", "input", "output")}
    texts = "".join(text for _, row in read_rows(files) for text in row.values())
    assert "\ufeff" not in texts
    assert "\r" not in texts


def test_a_line_that_is_not_utf_8_is_the_only_one_lost(shared_data) -> None:
    path = shared_data / "messy/05_truncated_multibyte_row7.jsonl"
    good = [json.loads(line) for place, line in enumerate(path.read_bytes().split(b"\n"), 1) if line and place != 8]
    assert [row for _, row in read_rows([str(path)]) if not isinstance(row, Skip)] == good


def test_line_separators_of_unicode_stay_in_their_strings(shared_data) -> None:
    first = next(read_rows([str(shared_data / "messy/11_u2028_nel_inside_strings.jsonl")]))[1]
    assert first["input"] == "a\u2028b\x85c\x0bd\x0ce"


def test_bad_conversations_are_refused_each_for_its_reason(shared_data, fix_tok, read, ledger) -> None:
    parts = read(str(shared_data / "messy/17_bad_chat_rows.jsonl"), ChatProcessor(fix_tok))
    skipped = [entry for entry in ledger() if entry["kind"] == "skipped"]
    refused = {int(entry["source"].rpartition(":")[2]): entry["reason"].partition(":")[0] for entry in skipped}
    assert refused == {
        2: "empty assistant content",
        3: "empty assistant content",
        4: "no assistant turn",
        5: "no assistant turn",
        10: "unknown role 'User'",
        11: "no content",
        12: "empty assistant content",
        13: "content that is not text",
        14: "no messages",
        15: "no list of messages",
        16: "no known shape",
        17: "no content",
        **dict.fromkeys((22, 23, 24, 25), "a row must be an object"),
    }
    assert len(parts.kept) == 25 - len(refused)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("19_empty.jsonl", "train data: its files have no rows"),
        ("21_empty_list.json", "train data: its files have no rows"),
    ],
)
def test_a_file_without_rows_is_an_error(shared_data, fix_tok, read, name, error) -> None:
    with pytest.raises(DataError) as raised:
        read(str(shared_data / "messy" / name), InstructionProcessor(fix_tok))
    assert str(raised.value).startswith(error)


def test_a_file_of_mixed_shapes_keeps_what_the_processor_reads(shared_data, fix_tok, read, ledger) -> None:
    file = str(shared_data / "messy/25_mixed_schema.jsonl")
    with pytest.raises(DataError) as raised:
        read(file, InstructionProcessor(fix_tok, shape="prompt_completion"), budget=0.5)
    assert str(raised.value).startswith(
        "train data: 4 of 5 rows (80.0%) can't be used, and data.ledger.budget allows 50.0%: "
        "4 not of shape prompt_completion (prompt, completion/response)\n"
        "  25_mixed_schema.jsonl:1: not of shape prompt_completion (prompt, completion/response): "
        "the row has 'instruction', 'input', 'output'\n"
    )
    assert len(read(file, InstructionProcessor(fix_tok, shape="prompt_completion"), budget=0.8).kept) == 1


def test_every_conversation_of_fastchat_becomes_an_example(shared_data, fix_tok, read, learned) -> None:
    path = shared_data / "fastchat/data__dummy_conversation.json"
    conversations = [row["conversations"] for row in json.loads(path.read_text())]
    assert len(conversations) == 500
    parts = read(str(path), ChatProcessor(fix_tok), budget=0.0)
    assert len(parts.kept) == 500
    for place, turns in enumerate(conversations):
        answers = [turn["value"] + "<|im_end|>" for turn in turns if turn["from"] == "gpt"]
        assert learned(fix_tok, parts.kept[place]) == "".join(answers)


def test_every_question_of_gsm8k_becomes_an_example(shared_data, fix_tok, read, learned) -> None:
    path = shared_data / "gsm8k/grade_school_math__data__test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 1319
    parts = read(str(path), InstructionProcessor(fix_tok), budget=0.0)
    assert Counter(parts.kept[place].source for place in range(1319)) == Counter(
        f"{path.name}:{line}" for line in range(1, 1320)
    )
    for place in range(0, 1319, 50):
        assert (
            fix_tok.decode(parts.kept[place].trunk.tokens) == f"{rows[place]['question']}{rows[place]['answer']}<eos>"
        )
        assert learned(fix_tok, parts.kept[place]) == f"{rows[place]['answer']}<eos>"


def test_every_pair_of_hh_rlhf_is_a_row(shared_data) -> None:
    path = shared_data / "hh-rlhf/harmless-base__test.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        expected = [json.loads(line) for line in lines]
    assert len(expected) == 2312  # as its authors count it
    read = list(read_rows([str(path)]))
    assert [row for _, row in read] == expected
    assert [source for source, _ in read] == [f"{path.name}:{line}" for line in range(1, 2313)]
