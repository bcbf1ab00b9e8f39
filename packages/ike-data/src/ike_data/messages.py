"""A row's conversation as chat templates expect it: a list of messages with role, content and what else they have.

Two spellings are read: OpenAI's `messages` of role and content, and ShareGPT's `conversations` of from and value.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from ike_core.interfaces import Record
from ike_data.row_error import RowError

Message = dict[str, Any]

ASSISTANT = "assistant"
COLUMNS = ("messages", "conversations")
"""Where a conversation is looked for."""
ROLES: Mapping[str, str] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": ASSISTANT,
    "gpt": ASSISTANT,
    "tool": "tool",
}
"""Name in the row -> the template's."""
_SPELLINGS = (("role", "content"), ("from", "value"))


def read_messages(record: Record, *, column: str, roles: Mapping[str, str]) -> list[Message]:
    """The messages in `column` ('': the one of COLUMNS that the row has), none left out. Raises RowError."""
    column = column or _column(record)
    if column not in record:
        raise RowError(f"no column {column!r}: the row has {_names(record)}")
    conversation = record[column]
    if not isinstance(conversation, list):
        raise RowError(f"no list of messages: column {column!r} holds {_kind(conversation)}")
    if not conversation:
        raise RowError(f"no messages: column {column!r} is empty")
    return [_message(said, f"{column}[{place}]", roles) for place, said in enumerate(conversation)]


def read_tools(record: Record, *, column: str) -> list[Any] | None:
    """The tools that the template lists; a string is read as the JSON it holds. Raises RowError."""
    tools = _parsed(record.get(column))
    if tools is None or tools == []:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError(f"no list of tools: column {column!r} holds {_kind(tools)}")
    return tools


def _column(record: Record) -> str:
    present = [column for column in COLUMNS if column in record]
    if len(present) != 1:
        which = "two conversations" if present else "no conversation"
        raise RowError(f"{which}: expected a column {' or '.join(map(repr, COLUMNS))}, the row has {_names(record)}")
    return present[0]


def _message(said: Any, place: str, roles: Mapping[str, str]) -> Message:
    if not isinstance(said, dict):
        raise RowError(f"no message: {place} is {_kind(said)}")
    role_key, content_key = next((keys for keys in _SPELLINGS if keys[0] in said), _SPELLINGS[0])
    role = said.get(role_key)
    if not isinstance(role, str) or role not in roles:
        known = ", ".join(roles)
        raise RowError(f"unknown role {role!r}: in {place}; known are {known}, and the processor's `roles` maps others")
    rest = {key: value for key, value in said.items() if key not in (role_key, content_key) and value is not None}
    content = _content(said.get(content_key), f"{place} ({role})")
    message = {"role": roles[role], "content": content or "", **rest}
    if rest.get("tool_calls"):  # then no content is what OpenAI's API gives, and "" what templates can read
        message["tool_calls"] = _tool_calls(rest["tool_calls"], place)
    elif message["role"] == ASSISTANT and not message["content"].strip():
        raise RowError(f"empty assistant content: {place}")
    elif content is None:
        raise RowError(f"no content: {place} ({role})")
    return message


def _content(content: Any, place: str) -> str | None:
    """Text; of typed parts the text of all, which must be text."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RowError(f"content that is not text: {place} holds {_kind(content)}")
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    if not all(isinstance(text, str) for text in texts):
        raise RowError(f"content that is not text: {place} holds parts of other kinds")
    return "".join(texts)  # type: ignore[arg-type]  # checked on the line above


def _tool_calls(calls: Any, place: str) -> list[Message]:
    """With arguments as an object, which is what templates expect; OpenAI's API gives them as a string of JSON."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RowError(f"no list of tool calls: {place} holds {_kind(calls)}")
    read = []
    for call in calls:
        function = call.get("function", call)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RowError(f"a tool call without a name: {place}")
        function = {**function, "arguments": _parsed(function.get("arguments", {}))}
        read.append({**call, "function": function} if "function" in call else function)
    return read


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _names(record: Record) -> str:
    return ", ".join(map(repr, record)) or "no columns"


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
