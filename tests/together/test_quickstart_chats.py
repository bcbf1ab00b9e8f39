"""The quickstart's chats are what a fine-tuning set should be."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "quickstart"
CLOSING = "\n- Wick at Skarn Light, lamp lit"


def chats(name: str) -> list[list[dict[str, Any]]]:
    return [json.loads(line)["messages"] for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def asked(name: str) -> list[str]:
    """Every user turn that opens a conversation, as one would compare them."""
    return [chat[0]["content"].lower().strip(" ?!.") for chat in chats(name)]


def test_there_are_enough_rows_and_a_held_out_set() -> None:
    assert len(chats("train.jsonl")) >= 100
    assert len(chats("valid.jsonl")) >= 20


def test_no_question_is_asked_twice_in_or_between_the_sets() -> None:
    questions = asked("train.jsonl") + asked("valid.jsonl") + asked("questions.jsonl")
    assert len(questions) == len(set(questions))


@pytest.mark.parametrize("name", ["train.jsonl", "valid.jsonl"])
def test_turns_alternate_and_end_with_the_assistant(name: str) -> None:
    for chat in chats(name):
        roles = [message["role"] for message in chat]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(message["content"].strip() for message in chat)


@pytest.mark.parametrize("name", ["train.jsonl", "valid.jsonl"])
def test_every_answer_is_short_and_closes_in_the_house_format(name: str) -> None:
    answers = [message["content"] for chat in chats(name) for message in chat if message["role"] == "assistant"]
    for answer in answers:
        said, closing, rest = answer.partition(CLOSING)
        assert closing, answer
        assert not rest, answer
        assert 0 < len(said.split()) <= 30, answer
    assert len(set(answers)) == len(answers)
