"""One conversation, spelt as people spell it: the same example, and the name of the shape it was read by."""

from typing import Any

import pytest

from ike_core import DataError, Skip
from ike_data import ChatProcessor, InstructionProcessor

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ok"}]
SPELLINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": ("messages", {"messages": MESSAGES}),
    "from and value": (
        "sharegpt",
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "ok"}]},
    ),
    "instruction": ("alpaca", {"instruction": "Hi", "input": "", "output": "ok"}),
    "instruction without input": ("alpaca", {"instruction": "Hi", "output": "ok"}),
    "prompt and completion": ("prompt_completion", {"prompt": "Hi", "completion": "ok"}),
    "prompt and response": ("prompt_completion", {"prompt": "Hi", "response": "ok"}),
    "prompt and completion as messages": ("prompt_completion", {"prompt": MESSAGES[:1], "completion": MESSAGES[1:]}),
    "question and answer": ("question_answer", {"question": "Hi", "answer": "ok"}),
    "a transcript": ("transcript", {"transcript": "\n\nHuman: Hi\n\nAssistant: ok"}),
    "a text that is a transcript": ("transcript", {"text": "Human: Hi\n\nAssistant: ok\n"}),
}


@pytest.mark.parametrize(("shape", "row"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_conversation_is_the_same_however_it_is_spelt(fix_tok, shape, row) -> None:
    processor = ChatProcessor(fix_tok)
    (example,) = processor.process({**row, "id": 7})
    assert fix_tok.decode(example.trunk.tokens) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n"
    )
    assert list(example.trunk.weights) == [0.0] * 21 + [1.0] * 3 + [0.0]
    assert processor.shape_of(row) == shape
    assert list(ChatProcessor(fix_tok, shape=shape).process(row)) == [example]


def test_an_instruction_s_input_stands_behind_it(fix_tok) -> None:
    row = {"instruction": "Add.", "input": "1 and 2", "output": "3"}
    (example,) = ChatProcessor(fix_tok).process(row)
    assert fix_tok.decode(example.trunk.tokens).startswith("<|im_start|>user\nAdd.\n\n1 and 2<|im_end|>\n")
    (plain,) = InstructionProcessor(fix_tok).process(row)
    assert fix_tok.decode(plain.trunk.tokens) == "Add.\n\n1 and 23<eos>"


def test_a_row_of_two_shapes_is_refused_and_a_word_settles_it(fix_tok) -> None:
    row = {"messages": MESSAGES, "prompt": "Hi", "completion": "no"}
    reason = "more than one shape: messages and prompt_completion; say which by the processor's `shape`"
    assert list(ChatProcessor(fix_tok).process(row)) == [Skip(reason)]
    (example,) = ChatProcessor(fix_tok, shape="messages").process(row)
    assert "ok" in fix_tok.decode(example.trunk.tokens)


def test_rows_that_are_all_of_two_shapes_refuse_the_run(fix_tok, write, read) -> None:
    row = {"messages": MESSAGES, "question": "Hi", "answer": "no"}
    with pytest.raises(DataError, match="none of 3 rows can be used: 3 more than one shape"):
        read(write("a.jsonl", [row] * 3), ChatProcessor(fix_tok))


def test_a_row_of_another_shape_than_the_one_said_is_refused(fix_tok) -> None:
    (item,) = ChatProcessor(fix_tok, shape="alpaca").process({"messages": MESSAGES})
    assert item == Skip("not of shape alpaca (instruction, output): the row has 'messages'")


def test_columns_rename_also_within_objects(fix_tok) -> None:
    row = {"query": "Hi", "reply": {"text": "ok"}, "answer": "a column of another meaning"}
    columns = {"prompt": "query", "completion": "reply.text"}
    processor = ChatProcessor(fix_tok, columns=columns)
    assert list(processor.process(row)) == list(ChatProcessor(fix_tok).process({"prompt": "Hi", "completion": "ok"}))
    (item,) = processor.process({"query": "Hi", "reply": {}})
    assert item == Skip("no column 'reply.text': the row has 'query', 'reply'")


def test_a_renamed_column_is_not_seen_twice(fix_tok) -> None:
    row = {"question": "Hi", "answer": "ok"}
    processor = ChatProcessor(fix_tok, columns={"prompt": "question", "completion": "answer"})
    assert processor.shape_of(row) == "prompt_completion"


def test_a_system_column_is_the_system_prompt_and_null_is_none(fix_tok) -> None:
    rows = [{"question": "Hi", "answer": "ok", "system": system} for system in (None, "", "S")]
    bare, empty, told = (next(iter(ChatProcessor(fix_tok).process(row))) for row in rows)
    assert bare == empty
    assert fix_tok.decode(told.trunk.tokens).startswith("<|im_start|>user\nS<|im_end|>\n<|im_start|>user\nHi")
    (item,) = ChatProcessor(fix_tok).process(
        {"messages": [{"role": "system", "content": "T"}, *MESSAGES], "system": "S"}
    )
    assert item == Skip("two system prompts: column 'system', and the conversation's first message")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_column_that_is_null_first_and_text_later_is_both(fix_tok, write, read, order) -> None:
    row = {"question": "Hi", "answer": "ok"}
    files = [write("nulls.jsonl", [{**row, "system": None}] * 3), write("texts.jsonl", [{**row, "system": "S"}])]
    kept = read([files[place] for place in order], ChatProcessor(fix_tok, fields=("system",)), budget=0.0).kept
    systems = {kept[place].source: kept[place].fields["system"] for place in range(len(kept))}
    assert systems == {"nulls.jsonl:1": None, "nulls.jsonl:2": None, "nulls.jsonl:3": None, "texts.jsonl:1": "S"}


def test_the_row_s_weight_is_obeyed_and_columns_ride_along(fix_tok, write, read) -> None:
    row = {"question": "Hi", "answer": "ok", "weight": 0.5, "id": 7}
    kept = read(write("a.jsonl", [row]), ChatProcessor(fix_tok, fields=("id", "question"))).kept
    assert kept[0].weight == 0.5
    assert dict(kept[0].fields) == {"id": 7, "question": "Hi"}
    assert kept.weights(0)["tokens"] == 1.5  # three tokens at a half


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"weight": "much"}, "the row's weight is no finite number: it is 'much'"),
        ({"weight": -0.5}, "the row's weight is negative: -0.5"),
        ({"id": 7}, "no column 'name': the row has 'question', 'answer', 'id'"),
    ],
)
def test_a_weight_or_a_column_that_can_t_be_used_says_so(fix_tok, row, reason) -> None:
    processor = ChatProcessor(fix_tok, fields=("name",))
    record = {"question": "Hi", "answer": "ok", **row}
    assert list(processor.process(record if "id" in row else {**record, "name": 1})) == [Skip(reason)]


def test_a_transcript_keeps_what_only_looks_like_a_speaker(fix_tok) -> None:
    text = "\n\nHuman: a\nHuman: b\n\nAssistant: c\n\nNote: d\n\nHuman: e\n\nAssistant:  f\n\n"
    talk = [
        {"role": "user", "content": "a\nHuman: b"},
        {"role": "assistant", "content": "c\n\nNote: d"},
        {"role": "user", "content": "e"},
        {"role": "assistant", "content": "f"},
    ]
    assert list(ChatProcessor(fix_tok).process({"text": text})) == list(
        ChatProcessor(fix_tok).process({"messages": talk})
    )


def test_a_column_that_no_row_can_have_is_refused_with_the_nearest(fix_tok) -> None:
    with pytest.raises(ValueError, match=r"columns.promt: no such column; did you mean 'prompt'\?"):
        ChatProcessor(fix_tok, columns={"promt": "query"})


def test_the_summary_tells_which_shapes_were_read(fix_tok, write, read) -> None:
    question, instruction = {"question": "Hi", "answer": "ok"}, {"instruction": "Hi", "output": "ok"}
    one = read(write("one.jsonl", [question] * 2), ChatProcessor(fix_tok))
    assert one.summary.startswith("train data: 2 rows as question_answer, 2 examples, ")
    rows = [instruction, question, question, {"other": 1}]
    assert read(write("two.jsonl", rows), ChatProcessor(fix_tok)).summary.startswith(
        "train data: 4 rows as 2 question_answer and 1 alpaca, 3 examples, "
    )
    assert read(write("said.jsonl", rows), InstructionProcessor(fix_tok, shape="alpaca")).summary.startswith(
        "train data: 4 rows as alpaca, 1 examples, "
    )
