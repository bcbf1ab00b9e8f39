"""Answers with a yes or a no: what is read, what is learned, and what a label may be."""

import pytest

from ike_core import LabelledExample, Skip
from ike_data import FeedbackProcessor

HEAD = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ok"}]
ROWS = {
    "prompt and completion": {"prompt": "Hi", "completion": "ok", "label": True},
    "messages": {"messages": TALK, "label": True},
    "from and value": {
        "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "ok"}],
        "label": 1,
    },
    "question and answer": {"question": "Hi", "answer": "ok", "label": True},
    "a transcript": {"text": "\n\nHuman: Hi\n\nAssistant: ok", "label": True},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_last_answer_is_learned_with_its_label(fix_tok, row) -> None:
    (example,) = FeedbackProcessor(fix_tok).process(row)
    assert isinstance(example, LabelledExample)
    assert example.desirable is True
    assert fix_tok.decode(example.prompt.tokens) == HEAD
    assert fix_tok.decode(example.answer.tokens) == "ok<|im_end|>\n"
    assert list(example.answer.weights) == [1.0, 1.0, 1.0, 0.0]
    assert not any(example.prompt.weights)


def test_earlier_answers_are_read(fix_tok) -> None:
    (example,) = FeedbackProcessor(fix_tok).process({"messages": [*TALK, *TALK], "label": False})
    assert example.desirable is False
    assert fix_tok.decode(example.prompt.tokens) == f"{HEAD}ok<|im_end|>\n{HEAD}"


def test_without_a_template_prompt_and_answer_are_text(fix_tok) -> None:
    row = {"q": "Q:", "a": "hi", "good": {"is": 0}, "weight": 2}
    columns = {"prompt": "q", "completion": "a", "label": "good.is"}
    (example,) = FeedbackProcessor(fix_tok, template=False, columns=columns).process(row)
    assert (fix_tok.decode(example.prompt.tokens), fix_tok.decode(example.answer.tokens)) == ("Q:", "hi<eos>")
    assert (example.desirable, example.weight) == (False, 2.0)


@pytest.mark.parametrize("label", [None, "yes", 2, -1, 0.5])
def test_a_label_is_true_or_false(fix_tok, label) -> None:
    (item,) = FeedbackProcessor(fix_tok).process({"prompt": "Hi", "completion": "ok", "label": label})
    assert item == Skip(f"a label that is neither true nor false: it is {label!r}")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "Hi", "completion": "ok"}, "no label: the row has 'prompt', 'completion'"),
        ({"messages": TALK[:1], "label": True}, "no answer to judge: the last message is a user's"),
        ({"prompt": "Hi", "completion": "", "label": True}, "empty assistant content: completion[0]"),
    ],
)
def test_a_row_that_judges_nothing_says_why(fix_tok, row, reason) -> None:
    assert list(FeedbackProcessor(fix_tok).process(row)) == [Skip(reason)]


def test_feedback_as_people_have_it(shared_data, fix_tok, read) -> None:
    parts = read(str(shared_data / "messy/07_kto.jsonl.gz"), FeedbackProcessor(fix_tok), budget=0.0)
    assert len(parts.kept) == 60  # as many lines as the file has
