"""A conversation as chat templates expect it: a list of messages with role, content and what else they have.

Two spellings are read, also mixed: OpenAI's role and content, and ShareGPT's from and value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from ike_data.row_columns import kind, number
from ike_data.row_error import RowError

Message = dict[str, Any]

ASSISTANT = "assistant"
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
REASONING = ("reasoning_content", "reasoning", "thinking")
"""Keys of a message that hold what was thought; templates may drop it."""
_SPELLINGS = (("role", "content"), ("from", "value"))
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


@attrs.frozen
class Talk:
    """A row's conversation."""

    messages: tuple[Message, ...]
    weights: tuple[float, ...]
    """Of each message, by its own `weight` or `train`; 1 where it has neither."""
    tools: Sequence[Any] | None = None
    """What the template lists."""

    @classmethod
    def said(cls, *messages: Message) -> "Talk":
        """Of messages that say no weight."""
        return cls(messages, (1.0,) * len(messages))

    def __add__(self, other: "Talk") -> "Talk":
        return Talk(self.messages + other.messages, self.weights + other.weights, self.tools or other.tools)

    def without_reasoning(self) -> "Talk":
        """As if the assistant had not thought aloud."""
        return attrs.evolve(self, messages=tuple(map(_without_reasoning, self.messages)))


def check_roles(named: Mapping[str, str], learned: Iterable[str] = ()) -> None:
    """ValueError where a table of roles maps to, or a list of them has, one that templates don't know."""
    known = sorted(set(ROLES.values()))
    said = [(f"roles.{name}", role) for name, role in named.items()] + [("learn_roles", role) for role in learned]
    for key, role in said:
        if role not in known:
            raise ValueError(f"{key}: there is no role {role!r}; known are {', '.join(known)}")


def read_talk(conversation: Any, *, column: str, roles: Mapping[str, str]) -> Talk:
    """A list of messages, none left out; `column` is where they are from. Raises RowError."""
    if not isinstance(conversation, list):
        raise RowError(f"no list of messages: column {column!r} holds {kind(conversation)}")
    if not conversation:
        raise RowError(f"no messages: column {column!r} is empty")
    places = [f"{column}[{place}]" for place in range(len(conversation))]
    messages = [_message(said, place, roles) for said, place in zip(conversation, places, strict=True)]
    weights = [_own_weight(message, place) for message, place in zip(messages, places, strict=True)]
    return Talk(tuple(messages), tuple(weights))


def read_tools(tools: Any, *, column: str) -> list[Any] | None:
    """The tools that the template lists; a string is read as the JSON it holds. Raises RowError."""
    tools = _parsed(tools)
    if tools is None or tools == []:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError(f"no list of tools: column {column!r} holds {kind(tools)}")
    return tools


def _message(said: Any, place: str, roles: Mapping[str, str]) -> Message:
    if not isinstance(said, dict):
        raise RowError(f"no message: {place} is {kind(said)}")
    role_key, content_key = next((keys for keys in _SPELLINGS if keys[0] in said), _SPELLINGS[0])
    role = said.get(role_key)
    if not isinstance(role, str) or role not in roles:
        known = ", ".join(roles)
        raise RowError(f"unknown role {role!r}: in {place}; known are {known}, and the processor's `roles` maps others")
    rest = {key: value for key, value in said.items() if key not in (role_key, content_key) and value is not None}
    content, thought = _content(said.get(content_key), f"{place} ({role})")
    message = {"role": roles[role], "content": content or "", **thought, **rest}
    if rest.get("tool_calls"):  # then no content is what OpenAI's API gives, and "" what templates can read
        message["tool_calls"] = _tool_calls(rest["tool_calls"], place)
    elif message["role"] == ASSISTANT and not message["content"].strip():
        raise RowError(f"empty assistant content: {place}")
    elif content is None:
        raise RowError(f"no content: {place} ({role})")
    return message


def _own_weight(message: Message, place: str) -> float:
    """Taken out of the message: it is nothing that the template is to show."""
    trains = message.pop("train", True)
    if not isinstance(trains, bool):
        raise RowError(f"`train` is neither true nor false: in {place} it is {trains!r}")
    own = number(message.pop("weight", 1.0), f"the weight of {place}")
    if own < 0.0:
        raise RowError(f"a weight is negative: that of {place} is {own}")
    return own if trains else 0.0


def _content(content: Any, place: str) -> tuple[str | None, Message]:
    """Text; of typed parts the text of all, and what was thought apart."""
    if content is None or isinstance(content, str):
        return content, {}
    if not isinstance(content, list):
        raise RowError(f"content that is not text: {place} holds {kind(content)}")
    said: list[str] = []
    thought: list[str] = []
    for part in content:
        sort = part.get("type") if isinstance(part, dict) else None
        text = part.get("text", part.get(sort)) if sort in ("text", "reasoning", "thinking") else None
        if not isinstance(text, str):
            raise RowError(f"content that is not text: {place} holds parts of other kinds")
        (said if sort == "text" else thought).append(text)
    return "".join(said), {"reasoning_content": "".join(thought)} if thought else {}


def _without_reasoning(message: Message) -> Message:
    if message["role"] != ASSISTANT:
        return message
    kept = {key: value for key, value in message.items() if key not in REASONING}
    kept["content"] = _THOUGHT.sub("", kept["content"])
    if not kept["content"].strip() and not kept.get("tool_calls"):
        raise RowError("empty assistant content: nothing is left without the reasoning")
    return kept


def _tool_calls(calls: Any, place: str) -> list[Message]:
    """With arguments as an object, which is what templates expect; OpenAI's API gives them as a string of JSON."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RowError(f"no list of tool calls: {place} holds {kind(calls)}")
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
