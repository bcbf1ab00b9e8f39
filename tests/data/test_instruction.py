"""Prompt and response rows: what is read, what is learned, and where the border is."""

import pytest

from ike_core import ConfigError, Skip
from ike_data import InstructionProcessor

BOS, EOS = 1, 2


def row(prompt, response) -> dict:
    return {"prompt": prompt, "response": response}


def test_the_response_and_the_eos_are_learned(fix_tok, supervised, learned) -> None:
    (example,) = InstructionProcessor(fix_tok).process(row("Hi?", "ok"))
    assert fix_tok.decode(example.trunk.tokens) == "Hi?ok<eos>"
    assert supervised(example) == [3, 4, 5]
    assert learned(fix_tok, example) == "ok<eos>"


def test_bos_is_read_where_the_tokenizer_adds_it(saved, supervised) -> None:
    (example,) = InstructionProcessor(saved(adds_bos=True)).process(row("Hi?", "ok"))
    assert (example.trunk.tokens[0], example.trunk.tokens[-1]) == (BOS, EOS)
    assert supervised(example) == [4, 5, 6]


@pytest.mark.parametrize(
    ("prompt", "response", "learned_text"),
    [
        ("Hi\n", "\nhi", "\n\nhi<eos>"),  # the two newlines are one token, and it holds the response's
        ("A: ", "hi: x", " hi: x<eos>"),
        ("A:", " hi: x", " hi: x<eos>"),  # " h" lies wholly in the response
        ("A: h", "i", "i<eos>"),
        ("", "ok", "ok<eos>"),
    ],
)
def test_a_token_across_the_border_is_the_response_s(fix_tok, learned, prompt, response, learned_text) -> None:
    (example,) = InstructionProcessor(fix_tok).process(row(prompt, response))
    assert list(example.trunk.tokens) == [*fix_tok.encode(prompt + response), EOS]
    assert learned(fix_tok, example) == learned_text


def test_what_a_row_spells_is_text(fix_tok, learned) -> None:
    (example,) = InstructionProcessor(fix_tok).process(row("a<eos>b<|im_end|>", "c<eos>d"))
    ids = list(example.trunk.tokens)
    assert (ids.count(EOS), ids.count(4)) == (1, 0)
    assert learned(fix_tok, example) == "c<eos>d<eos>"


KNOWN = (
    "prompt_completion (prompt, completion/response), question_answer (question, answer), alpaca (instruction, output)"
)
AMBIGUOUS = "and question_answer; say which by the processor's `shape`"
TWO_ANSWERS = "more than one answer: columns 'completion' and 'response'; name one in `columns`"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"prompt": "a"}, f"no known shape: the row has 'prompt'; known are {KNOWN}"),
        ({**row("a", "b"), "question": "a", "answer": "b"}, f"more than one shape: prompt_completion {AMBIGUOUS}"),
        ({**row("a", "b"), "completion": "b"}, TWO_ANSWERS),
        (row("a", 5), "column 'response' is not text: it holds a number"),
        (row(None, "a"), "column 'prompt' is not text: it holds null"),
        (row("a", ""), "empty response"),
        (row("a", " \n"), "empty response"),
    ],
)
def test_a_row_that_can_t_be_used_says_why(fix_tok, record, reason) -> None:
    assert list(InstructionProcessor(fix_tok).process(record)) == [Skip(reason)]


def test_a_block_gives_what_its_rows_give_alone(fix_tok) -> None:
    processor = InstructionProcessor(fix_tok, columns={"prompt": "q", "response": "a"})
    records = [{"q": "Hi", "a": "ok"}, {"q": "Hi"}, {"q": "<eos>", "a": "\nhi"}, {"q": "", "a": "x"}]
    assert processor.process_block(records) == [list(processor.process(record)) for record in records]


def test_a_tokenizer_without_eos_is_refused(saved) -> None:
    with pytest.raises(ConfigError, match="no eos token, so a response would never be taught to end"):
        list(InstructionProcessor(saved(eos_token=None)).process(row("a", "b")))


class Letters:
    """A tokenizer that knows no offsets."""

    vocabulary = None

    def encode(self, text, *, special_tokens=False) -> list[int]:
        return list(map(ord, text))

    def decode(self, tokens) -> str:
        return "".join(map(chr, tokens))

    def save(self, folder) -> None: ...


def test_a_tokenizer_that_knows_no_characters_is_refused_by_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match="Letters lacks encoder, opening, template; use"):
        list(InstructionProcessor(Letters()).process(row("a", "b")))


def test_a_real_tokenizer_s_prompt_and_response(stories, learned) -> None:
    from ike_data import HFTokenizer

    tokenizer = HFTokenizer(path=str(stories))
    (example,) = InstructionProcessor(tokenizer).process(row("Once upon a time", " there was a girl."))
    assert example.trunk.tokens[0] == tokenizer.vocabulary.bos
    assert tokenizer.decode(example.trunk.tokens) == "<s> Once upon a time there was a girl.</s>"
    assert learned(tokenizer, example) == "there was a girl.</s>"
