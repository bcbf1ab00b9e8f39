"""Conversations written out as one text: "\\n\\nHuman: ... \\n\\nAssistant: ..."."""

import re
from collections.abc import Mapping

from ike_data.messages import Message
from ike_data.row_error import RowError

SPEAKERS: Mapping[str, str] = {"Human": "user", "Assistant": "assistant", "System": "system"}
"""Name in a transcript -> the template's."""
_START = re.compile(r"\s*(Human|System):")


def is_transcript(text: object) -> bool:
    """Whether a value starts as a transcript does."""
    return isinstance(text, str) and _START.match(text) is not None


def read_transcript(text: str, column: str) -> list[Message]:
    """Its messages; white space around what is said is the transcript's own. Raises RowError.

    A speaker's name counts behind an empty line, or at the start.
    """
    if not is_transcript(text):
        raise RowError(f"no transcript: column {column!r} starts with {text[:20]!r}, not with 'Human:'")
    pieces = re.split(rf"\n\n({'|'.join(SPEAKERS)}):", "\n\n" + text.lstrip())[1:]
    return [
        {"role": SPEAKERS[speaker], "content": said.strip()}
        for speaker, said in zip(pieces[::2], pieces[1::2], strict=True)
    ]


def split_transcript(text: str, column: str) -> tuple[str, str]:
    """As it stands: up to and with the last "Assistant:", and what is said there. Raises RowError."""
    if not is_transcript(text):
        raise RowError(f"no transcript: column {column!r} starts with {text[:20]!r}, not with 'Human:'")
    prompt, name, answer = text.rpartition("\n\nAssistant:")
    if not name or not answer.strip():
        raise RowError(f"empty answer: {column}")
    return prompt + name, answer
