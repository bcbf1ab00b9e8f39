"""Rows of one prompt and one response, as text."""

from collections.abc import Mapping

from ike_core.interfaces import Record
from ike_data.row_columns import text
from ike_data.row_error import RowError
from ike_data.shapes import CONVERSATIONS, Shape
from ike_data.talks import asked, response_column

EXCHANGES: Mapping[str, Shape] = {
    name: CONVERSATIONS[name] for name in ("prompt_completion", "question_answer", "alpaca")
}


def read_exchange(record: Record, shape: str) -> tuple[str, str]:
    """Prompt and response of a row of a shape in EXCHANGES. Raises RowError."""
    if shape == "alpaca":
        prompt, answer = asked(record), "output"
    elif shape == "question_answer":
        prompt, answer = text(record, "question"), "answer"
    else:
        prompt, answer = text(record, "prompt"), response_column(record)
    response = text(record, answer)
    if not response.strip():
        raise RowError("empty response")
    return prompt, response
