"""What a row has to compare: answers with the prompt of each, from the best to the worst."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ike_core.interfaces import Record
from ike_data.messages import ASSISTANT, ROLES, Talk, read_talk
from ike_data.row_columns import kind, number
from ike_data.row_error import RowError
from ike_data.shapes import Shape, shape_of
from ike_data.talks import USER, spoken, with_setting
from ike_data.transcripts import is_transcript, read_transcript, split_transcript

SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("chosen", (("chosen",), ("rejected",)), text=("prompt", "chosen")),
        Shape("transcript", (("chosen",), ("rejected",)), transcript=("prompt", "chosen")),
        Shape("scored", (("answers",), ("scores",))),
        Shape("ranked", (("answers",), ("ranks",))),
    )
}
PROMPTS = ("prompt", "question", "conversations")
"""Where a prompt of its own may be: text, or messages."""
KNOWN = (
    *("chosen", "rejected", "answers", "scores", "ranks", "score_chosen", "score_rejected", "margin"),
    *(*PROMPTS, "system", "tools", "weight"),
)
"""Every column that a row with preferences may have."""


@attrs.frozen
class Choice:
    """Answers, the best first."""

    talks: tuple[Talk, ...]
    """Each with its prompt; empty where they are texts."""
    texts: tuple[tuple[str, str], ...]
    """Prompt and answer."""
    scores: tuple[float, ...]
    """One an answer; empty where the row has none."""
    margin: float


def read_choice(record: Record, shape: str, roles: Mapping[str, str], *, is_text: bool) -> Choice:
    """What a row has to compare; `is_text`: as it stands, without a template. Raises RowError."""
    named = shape_of(record, shape, SHAPES).name
    answers: list[tuple[Any, str]] = [(record[name], name) for name in ("chosen", "rejected") if name in record]
    scores = _pair_scores(record)
    if named in ("scored", "ranked"):
        answers, scores = _sorted(record, "scores" if named == "scored" else "ranks")
    if named == "transcript":
        read = [_transcript(record, answer, name, is_text=is_text) for answer, name in answers]
        _check_prompts([one.messages[:-1] if isinstance(one, Talk) else one[0] for one in read])
    else:
        read = [_answered(record, answer, name, roles, is_text=is_text) for answer, name in answers]
    talks = tuple(with_setting(talk, record) for talk in read if isinstance(talk, Talk))
    texts = tuple(text for text in read if not isinstance(text, Talk))
    return Choice(talks, texts, scores, _margin(record, scores))


def _sorted(record: Record, by: str) -> tuple[list[tuple[Any, str]], tuple[float, ...]]:
    """Answers and scores, the best first, in the row's order where they are alike; a rank of 1 is a score of -1."""
    answers, marks = record["answers"], record[by]
    if not isinstance(answers, list) or not isinstance(marks, list) or len(answers) != len(marks) or len(answers) < 2:
        raise RowError(f"no list to compare: `answers` holds {_size(answers)}, and `{by}` {_size(marks)}")
    sign = 1.0 if by == "scores" else -1.0
    scores = [sign * number(mark, f"{by}[{place}]") for place, mark in enumerate(marks)]
    if len(set(scores)) == 1:
        raise RowError(f"nothing to compare: all {len(scores)} answers have the same place in `{by}`")
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return [(answers[place], f"answers[{place}]") for place in order], tuple(scores[place] for place in order)


def _pair_scores(record: Record) -> tuple[float, ...]:
    if record.get("score_chosen") is None or record.get("score_rejected") is None:
        return ()
    chosen, rejected = (number(record[name], f"`{name}`") for name in ("score_chosen", "score_rejected"))
    if rejected > chosen:
        raise RowError(f"the rejected answer has the higher score: {rejected}, and the chosen one {chosen}")
    return chosen, rejected


def _margin(record: Record, scores: Sequence[float]) -> float:
    """By how much the best is better than the next: the row's own `margin`, or what the scores say."""
    if record.get("margin") is None:
        return scores[0] - scores[1] if scores else 0.0
    margin = number(record["margin"], "`margin`")
    if margin < 0.0:
        raise RowError(f"the margin is negative: {margin}")
    return margin


def _transcript(record: Record, answer: Any, name: str, *, is_text: bool) -> Talk | tuple[str, str]:
    prompt = record.get("prompt", "")
    if not isinstance(answer, str) or not isinstance(prompt, str):
        raise RowError(f"no transcript: column {name!r} holds {kind(answer)}, and 'prompt' {kind(prompt)}")
    whole = answer if is_transcript(answer) else prompt + answer
    if is_text:
        return split_transcript(whole, name)
    return read_talk(read_transcript(whole, name), column=name, roles=ROLES)


def _check_prompts(prompts: Sequence[object]) -> None:
    """A transcript's answer is what is said last. Raises RowError."""
    if any(prompt != prompts[0] for prompt in prompts):
        raise RowError("no prompt in common: the transcripts differ before their last answer")


def _answered(
    record: Record, answer: Any, name: str, roles: Mapping[str, str], *, is_text: bool
) -> Talk | tuple[str, str]:
    where = next((place for place in PROMPTS if place in record), "")
    prompt = record.get(where)
    if is_text:
        return _as_text(prompt, where or "prompt"), _as_text(answer, name, is_answer=True)
    said = spoken(answer, name, ASSISTANT, roles)
    if prompt is None and not where:
        if len(said.messages) == 1:
            raise RowError(f"no prompt: column {name!r} has the answer alone, and the row none of {', '.join(PROMPTS)}")
        return said
    asked = spoken(prompt, where, USER, roles)
    if said.messages[0]["role"] == ASSISTANT:
        return asked + said
    first = next((place for place, message in enumerate(said.messages) if message["role"] == ASSISTANT), 0)
    if said.messages[max(first - len(asked.messages), 0) : first] == asked.messages:
        return said  # the prompt is also told by itself
    raise RowError(f"two prompts: column {where!r}, and {name}, which starts otherwise")


def _as_text(value: Any, column: str, *, is_answer: bool = False) -> str:
    if not isinstance(value, str):
        raise RowError(f"column {column!r} is not text: it holds {kind(value)}, and template = false")
    if is_answer and not value.strip():
        raise RowError(f"empty answer: {column}")
    return value


def _size(value: Any) -> str:
    return f"{len(value)} of them" if isinstance(value, list) else kind(value)
