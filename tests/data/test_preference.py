"""Answers that are better or worse: what is the trunk, what is learned, and which rows are no comparison.

FIX-TOK, a byte a token: user "Hi" with the assistant's header is 21 tokens; an answer "ok" is 2, its end-of-turn and
the newline behind it 2 more.
"""

import gzip
import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ike_core import Comparison, Skip
from ike_data import PreferenceProcessor

EOS = 2


@pytest.fixture
def compare(fix_tok) -> Callable[..., Any]:
    """What the processor makes of one row."""

    def compare(record: Any, **fields: Any) -> Any:
        (item,) = PreferenceProcessor(fix_tok, **fields).process(record)
        return item

    return compare


@pytest.fixture
def texts(fix_tok) -> Callable[..., Any]:
    """(trunk, each branch, what is learned of each answer, the trunk's share with it) of a comparison, as text."""

    def texts(item: Comparison) -> tuple[str, list[str], list[str]]:
        assert isinstance(item, Comparison), item
        learned = [
            fix_tok.decode(
                token
                for part in (item.trunk, branch)
                for token, weight in zip(part.tokens, part.weights, strict=True)
                if weight
            )
            for branch in item.branches
        ]
        return fix_tok.decode(item.trunk.tokens), [fix_tok.decode(b.tokens) for b in item.branches], learned

    return texts


HEAD = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
USER = {"role": "user", "content": "Hi"}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


SPELLINGS = {
    "texts with a prompt": {"prompt": "Hi", "chosen": "ok", "rejected": "no"},
    "messages with a prompt": {"prompt": [USER], "chosen": [answer("ok")], "rejected": [answer("no")]},
    "a text as the prompt of messages": {"prompt": "Hi", "chosen": [answer("ok")], "rejected": answer("no")},
    "whole conversations": {"chosen": [USER, answer("ok")], "rejected": [USER, answer("no")]},
    "whole conversations and the prompt once more": {
        "prompt": "Hi",
        "chosen": [USER, answer("ok")],
        "rejected": [USER, answer("no")],
    },
    "from and value": {
        "conversations": [{"from": "human", "value": "Hi"}],
        "chosen": {"from": "gpt", "value": "ok"},
        "rejected": {"from": "gpt", "value": "no"},
    },
    "transcripts": {
        "chosen": "\n\nHuman: Hi\n\nAssistant: ok",
        "rejected": "\n\nHuman: Hi\n\nAssistant: no",
    },
    "a transcript as the prompt": {"prompt": "\n\nHuman: Hi\n\nAssistant:", "chosen": " ok", "rejected": " no"},
    "a question": {"question": "Hi", "chosen": "ok", "rejected": "no"},
    "scores": {"prompt": "Hi", "answers": ["no", "ok"], "scores": [0.0, 0.0 + 1e-9]},
    "ranks": {"prompt": "Hi", "answers": ["no", "ok"], "ranks": [2, 1]},
}


@pytest.mark.parametrize("row", SPELLINGS.values(), ids=SPELLINGS)
def test_a_pair_is_the_same_tree_however_it_is_spelt(compare, texts, row) -> None:
    trunk, branches, learned = texts(compare(row))
    assert trunk == HEAD
    assert branches == ["ok<|im_end|>\n", "no<|im_end|>\n"]
    assert learned == ["ok<|im_end|>", "no<|im_end|>"]


def test_what_answers_begin_with_alike_is_the_trunk_s(compare, texts) -> None:
    row = {"prompt": "Hi", "chosen": "ok then", "rejected": "ok, no"}
    assert texts(compare(row)) == (
        HEAD + "ok",
        [" then<|im_end|>\n", ", no<|im_end|>\n"],
        ["ok then<|im_end|>", "ok, no<|im_end|>"],
    )


def test_an_answer_that_another_begins_with_keeps_its_end(compare, texts) -> None:
    row = {"prompt": "Hi", "chosen": "ok", "rejected": "okay"}
    assert texts(compare(row)) == (HEAD + "ok", ["<|im_end|>\n", "ay<|im_end|>\n"], ["ok<|im_end|>", "okay<|im_end|>"])


def test_a_conversation_that_goes_on_where_the_other_has_ended_keeps_something_to_learn_in_both(compare, texts) -> None:
    longer = [USER, answer("ok"), {"role": "user", "content": "?"}, answer("no")]
    trunk, branches, learned = texts(compare({"chosen": [USER, answer("ok")], "rejected": longer}))
    assert trunk == HEAD + "ok"
    assert branches[0] == "<|im_end|>\n"
    assert learned == ["ok<|im_end|>", "ok<|im_end|>no<|im_end|>"]


def test_answers_of_several_turns_are_learned_where_the_assistant_speaks(compare, texts) -> None:
    chosen = [USER, answer("a"), {"role": "user", "content": "b"}, answer("c")]
    _, _, learned = texts(compare({"chosen": chosen, "rejected": [USER, answer("z")]}))
    assert learned == ["a<|im_end|>c<|im_end|>", "z<|im_end|>"]


def test_a_turn_before_the_answers_part_is_not_learned(compare, texts) -> None:
    prompt = [USER, answer("a"), USER]
    trunk, _, learned = texts(compare({"prompt": prompt, "chosen": [answer("b")], "rejected": [answer("c")]}))
    assert "a<|im_end|>" in trunk
    assert learned == ["b<|im_end|>", "c<|im_end|>"]


def test_texts_without_a_template_end_with_eos(compare, texts) -> None:
    row = {"prompt": "Q:", "chosen": " hi", "rejected": " no"}
    assert texts(compare(row, template=False)) == ("Q:", [" hi<eos>", " no<eos>"], [" hi<eos>", " no<eos>"])
    transcripts = {"chosen": "\n\nHuman: Hi\n\nAssistant: ok", "rejected": "\n\nHuman: Hi\n\nAssistant: no"}
    trunk, branches, _ = texts(compare(transcripts, template=False))
    assert trunk == "\n\nHuman: Hi\n\nAssistant: "
    assert branches == ["ok<eos>", "no<eos>"]


def test_a_scored_list_is_a_tree_with_the_best_first(compare, texts) -> None:
    row = {"prompt": "Hi", "answers": ["c", "a", "b", "d"], "scores": [1, 4.5, 3, 1]}
    tree = compare(row)
    assert texts(tree)[2] == ["a<|im_end|>", "b<|im_end|>", "c<|im_end|>", "d<|im_end|>"]
    assert [branch.score for branch in tree.branches] == [4.5, 3.0, 1.0, 1.0]
    assert tree.margin == 1.5  # 4.5 - 3


def test_a_ranked_list_has_the_lowest_rank_first(compare, texts) -> None:
    tree = compare({"prompt": "Hi", "answers": ["c", "a", "b"], "ranks": [3, 1, 2]})
    assert texts(tree)[2] == ["a<|im_end|>", "b<|im_end|>", "c<|im_end|>"]
    assert [branch.score for branch in tree.branches] == [-1.0, -2.0, -3.0]


@pytest.mark.parametrize(
    ("said", "scores", "margin"),
    [
        ({}, [None, None], 0.0),
        ({"margin": 0.5}, [None, None], 0.5),
        ({"score_chosen": 8.0, "score_rejected": 2.5}, [8.0, 2.5], 5.5),
        ({"score_chosen": 8.0, "score_rejected": 2.5, "margin": 1}, [8.0, 2.5], 1.0),
        ({"score_chosen": None, "score_rejected": None, "margin": None}, [None, None], 0.0),
    ],
)
def test_a_pair_s_margin_is_the_row_s_or_what_its_scores_say(compare, said, scores, margin) -> None:
    pair = compare({"prompt": "Hi", "chosen": "ok", "rejected": "no", **said})
    assert [branch.score for branch in pair.branches] == scores
    assert pair.margin == margin


PAIR = {"prompt": "Hi", "chosen": "ok", "rejected": "no"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**PAIR, "rejected": "ok"}, "the answers are the same: there is nothing to compare"),
        ({**PAIR, "rejected": " "}, "empty assistant content: rejected[0]"),
        (
            {"chosen": "ok", "rejected": "no"},
            "no prompt: column 'chosen' has the answer alone, and the row none of prompt",
        ),
        ({**PAIR, "margin": -1}, "the margin is negative: -1.0"),
        ({**PAIR, "margin": math.inf}, "`margin` is no finite number: it is inf"),
        ({**PAIR, "margin": "1"}, "`margin` is no finite number: it is '1'"),
        ({**PAIR, "score_chosen": 1, "score_rejected": 2}, "the rejected answer has the higher score: 2.0, and"),
        ({**PAIR, "weight": -1}, "the row's weight is negative: -1.0"),
        ({"prompt": "Hi", "answers": ["a", "b"], "scores": [1, 1]}, "nothing to compare: all 2 answers have the same"),
        ({"prompt": "Hi", "answers": ["a", "b"], "scores": [1]}, "no list to compare: `answers` holds 2 of them, and"),
        (
            {"prompt": "Hi", "answers": ["a", "b"]},
            "no known shape: the row has 'prompt', 'answers'; known are chosen (",
        ),
        ({**PAIR, "answers": ["a", "b"], "scores": [1, 2]}, "more than one shape: chosen and scored; say which"),
        (
            {"chosen": [USER, answer("a")], "rejected": [{"role": "user", "content": "Ho"}, answer("b")]},
            "no prompt in common: the answers part at messages[0], which a user says",
        ),
        (
            {"prompt": "Ho", "chosen": [USER, answer("a")], "rejected": [USER, answer("b")]},
            "two prompts: column 'prompt', and chosen, which starts otherwise",
        ),
    ],
)
def test_a_row_that_compares_nothing_says_why(compare, row, reason) -> None:
    item = compare(row)
    assert isinstance(item, Skip)
    assert item.reason.startswith(reason)


def test_the_row_s_weight_and_columns_ride_along(compare) -> None:
    pair = compare({**PAIR, "weight": 0.25, "id": 7}, fields=("id",))
    assert pair.weight == 0.25
    assert dict(pair.fields) == {"id": 7}


def test_a_control_token_spelt_in_an_answer_is_text_and_noted(compare, texts) -> None:
    pair = compare({**PAIR, "chosen": "say <eos>"})
    assert texts(pair)[2][0] == "say <eos><|im_end|>"
    assert EOS not in pair.branches[0].tokens
    assert pair.notes == ("spells a control token: read as text",)


def test_columns_that_no_row_has_are_refused_at_once(fix_tok) -> None:
    with pytest.raises(ValueError, match=r"columns.choosen: no such column; did you mean 'chosen'\?"):
        PreferenceProcessor(fix_tok, columns={"choosen": "x"})
    with pytest.raises(ValueError, match=r"scores has 1 columns, and answers 2; give one each"):
        PreferenceProcessor(fix_tok, answers=("a", "b"), scores=("c",))


def test_hh_rlhf_gives_its_pairs_and_a_reason_for_the_others(shared_data, fix_tok, read, ledger) -> None:
    path = shared_data / "hh-rlhf/harmless-base__test.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    parted = [tuple(row[side].rpartition("\n\nAssistant:") for side in ("chosen", "rejected")) for row in rows]
    apart = {n for n, (chosen, rejected) in enumerate(parted, 1) if chosen[0] != rejected[0]}
    empty = {n for n, pair in enumerate(parted, 1) if not all(side[2].strip() for side in pair)}
    assert (len(rows), len(apart), len(empty)) == (2312, 5, 4)
    for template in (True, False):
        parts = read(str(path), PreferenceProcessor(fix_tok, template=template))
        skipped = {int(e["source"].rpartition(":")[2]): e["reason"] for e in ledger() if e["kind"] == "skipped"}
        assert {n for n, reason in skipped.items() if reason.startswith("no prompt in common")} == apart
        assert {n for n, reason in skipped.items() if reason.startswith("empty")} == empty
        assert len(skipped) == 9
        assert len(parts.kept) == 2303
    pair = parts.kept[0]
    assert fix_tok.decode([*pair.trunk.tokens, *pair.branches[0].tokens]) == rows[0]["chosen"] + "<eos>"
    assert fix_tok.decode([*pair.trunk.tokens, *pair.branches[1].tokens]) == rows[0]["rejected"] + "<eos>"


def test_solutions_of_gsm8k_are_compared_by_whether_they_are_right(shared_data, fix_tok, read, ledger) -> None:
    path = shared_data / "gsm8k/grade_school_math__data__example_model_solutions.jsonl"
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    processor = PreferenceProcessor(
        fix_tok,
        columns={"prompt": "question"},
        answers=tuple(f"{model}.solution" for model in models),
        scores=tuple(f"{model}.is_correct" for model in models),
    )
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rights = [sum(row[model]["is_correct"] for model in models) for row in rows]
    parts = read(str(path), processor)
    assert len(parts.kept) == sum(0 < right < 4 for right in rights)
    assert Counter(e["reason"].partition(":")[0] for e in ledger() if e["kind"] == "skipped") == {
        "nothing to compare": sum(right in (0, 4) for right in rights)
    }
    mixed = [right for right in rights if 0 < right < 4]
    for place in range(0, len(mixed), 40):
        scores = [branch.score for branch in parts.kept[place].branches]
        assert scores == [1.0] * mixed[place] + [0.0] * (4 - mixed[place])
