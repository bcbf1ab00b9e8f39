"""Rows of any shape to conversations."""

from collections.abc import Mapping
from typing import Any

import attrs

from ike_core.interfaces import Record
from ike_data.messages import ASSISTANT, Talk, read_talk, read_tools
from ike_data.row_columns import kind, text
from ike_data.row_error import RowError
from ike_data.shapes import CONVERSATIONS, Shape, shape_of
from ike_data.transcripts import read_transcript

USER = "user"
KNOWN = (
    *dict.fromkeys(name for shape in CONVERSATIONS.values() for one_of in shape.columns for name in one_of),
    "input",
    "system",
    "tools",
    "weight",
)
"""Every column that a row with a conversation may have."""


def read_row(record: Record, shape: str, roles: Mapping[str, str]) -> Talk:
    """The conversation of a row, with its system prompt and tools. Raises RowError."""
    return with_setting(_conversation(record, shape_of(record, shape, CONVERSATIONS), roles), record)


def with_setting(talk: Talk, record: Record) -> Talk:
    """With what the row's `system` and `tools` columns say. Raises RowError."""
    system = record.get("system")
    if system:
        if not isinstance(system, str):
            raise RowError(f"column 'system' is not text: it holds {kind(system)}")
        if talk.messages[0]["role"] == "system":
            raise RowError("two system prompts: column 'system', and the conversation's first message")
        talk = Talk.said({"role": "system", "content": system}) + talk
    tools = read_tools(record.get("tools"), column="tools")
    return attrs.evolve(talk, tools=tools) if tools else talk


def spoken(value: Any, column: str, speaker: str, roles: Mapping[str, str]) -> Talk:
    """Text that a speaker says, a message, or a list of them. Raises RowError."""
    if isinstance(value, str):
        value = [{"role": speaker, "content": value}]
    elif isinstance(value, dict):
        value = [value]
    return read_talk(value, column=column, roles=roles)


def asked(record: Record) -> str:
    """An instruction and the input that goes with it, if there is one. Raises RowError."""
    given = record.get("input")
    return text(record, "instruction") + (f"\n\n{text(record, 'input')}" if given else "")


def response_column(record: Record) -> str:
    """Raises RowError where there are two."""
    if "completion" in record and "response" in record:
        raise RowError("more than one answer: columns 'completion' and 'response'; name one in `columns`")
    return "completion" if "completion" in record else "response"


def _conversation(record: Record, shape: Shape, roles: Mapping[str, str]) -> Talk:
    match shape.name:
        case "alpaca":
            prompt, answer = asked(record), "output"
        case "prompt_completion":
            prompt, answer = record["prompt"], response_column(record)
        case "question_answer":
            prompt, answer = record["question"], "answer"
        case "transcript":
            column = "transcript" if "transcript" in record else "text"
            return read_talk(read_transcript(text(record, column), column), column=column, roles=roles)
        case _:
            column = "messages" if shape.name == "messages" else "conversations"
            return read_talk(record[column], column=column, roles=roles)
    return spoken(prompt, shape.columns[0][0], USER, roles) + spoken(record[answer], answer, ASSISTANT, roles)
