"""Which turns of a conversation are learned, and with what weight; reasoning; control tokens that a row spells."""

from collections.abc import Callable
from typing import Any

import pytest

from ike_core import Skip
from ike_data import ChatProcessor, HFTokenizer

IM_END = 4


@pytest.fixture
def taught(fix_tok) -> Callable[..., list[tuple[str, float]]]:
    """(text, weight) of each run of learned tokens."""

    def taught(messages: list[dict[str, Any]], tokenizer: HFTokenizer = fix_tok, **fields: Any) -> Any:
        (item,) = ChatProcessor(tokenizer, **fields).process({"messages": messages})
        if isinstance(item, Skip):
            return item.reason
        runs: list[tuple[list[int], float]] = []
        last = 0.0
        for token, weight in zip(item.trunk.tokens, item.trunk.weights, strict=True):
            if weight and weight == last:
                runs[-1][0].append(token)
            elif weight:
                runs.append(([token], weight))
            last = weight
        return [(tokenizer.decode(tokens), weight) for tokens, weight in runs]

    return taught


def user(content: Any, **rest: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **rest}


def answer(content: Any, **rest: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **rest}


def test_all_turns_or_the_last(taught) -> None:
    talk = [user("a"), answer("b"), user("c"), answer("d"), user("e")]
    assert taught(talk) == [("b<|im_end|>", 1.0), ("d<|im_end|>", 1.0)]
    assert taught(talk, learn="last") == [("d<|im_end|>", 1.0)]


def test_by_role(taught, fix_tok) -> None:
    talk = [user("\na"), answer(" b"), user(" c")]
    assert taught(talk, learn_roles=("user",)) == [("\n\na<|im_end|>", 1.0), (" c<|im_end|>", 1.0)]  # "\n\n" is a token
    assert taught(talk, learn_roles=("user", "assistant")) == [
        ("\n\na<|im_end|>", 1.0),
        (" b<|im_end|>", 1.0),
        (" c<|im_end|>", 1.0),
    ]
    assert taught(talk, learn_roles=("tool",)) == "no tool turn: 3 messages by user, assistant"


def test_a_role_s_text_starts_behind_what_the_template_writes_before_it(taught, saved, template) -> None:
    chat = template(before="{% set greeting = 'x' %}").replace(
        "{{ '<|im_start|>user\n' + ", "{{ '<|im_start|>user says: ' + "
    )
    assert taught([user("a"), answer("b")], saved(chat=chat), learn_roles=("user",)) == [("a<|im_end|>", 1.0)]


def test_a_turn_s_own_train_or_weight_is_obeyed(taught) -> None:
    talk = [user("a"), answer("b", train=False), user("c"), answer("d", weight=0.5), user("e"), answer("f", weight=1)]
    assert taught(talk) == [("d<|im_end|>", 0.5), ("f<|im_end|>", 1.0)]
    assert taught([user("a"), answer("b", weight=0)]) == "no turn to learn: the weight of all is 0"
    assert taught([user("a"), answer("b", weight=-1)]) == "a weight is negative: that of messages[1] is -1.0"
    assert (
        taught([user("a"), answer("b", train="no")]) == "`train` is neither true nor false: in messages[1] it is 'no'"
    )


def test_a_turn_that_is_not_learned_need_not_be_placed(taught, saved, template) -> None:
    twice = "{{ '<|im_start|>assistant\n' + message.content + ('<|im_end|>' if loop.last else '') + '\n' }}"
    tokenizer = saved(chat=template(assistant=twice))
    talk = [user("a"), answer("b"), user("c"), answer("d")]
    assert taught(talk, tokenizer).startswith("no end-of-turn")
    assert taught(talk, tokenizer, learn="last") == [("d<|im_end|>", 1.0)]


SHOWS = (
    "{{ '<|im_start|>assistant\n' }}"
    "{% if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}"
    "{{ message.content + '<|im_end|>\n' }}"
)


def test_reasoning_is_learned_or_taken_out(taught, saved, template) -> None:
    tokenizer = saved(chat=template(assistant=SHOWS))
    apart = [user("a"), answer("b", reasoning_content="hm")]
    parts = [user("a"), answer([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "b"}])]
    inside = [user("a"), answer("<think>hm</think>b")]
    for talk in (apart, parts, inside):
        assert taught(talk, tokenizer) == [("<think>hm</think>b<|im_end|>", 1.0)]
        assert taught(talk, tokenizer, reasoning=False) == [("b<|im_end|>", 1.0)]
    assert taught([user("a"), answer("<think>hm</think>")], reasoning=False) == (
        "empty assistant content: nothing is left without the reasoning"
    )


def test_a_control_token_that_a_row_spells_is_text_or_skipped_or_allowed_and_counted(
    taught, fix_tok, write, read, ledger
) -> None:
    talk = [user("a<|im_end|>"), answer("b")]
    reasons = {
        "text": ("altered", "spells a control token: read as text"),
        "allow": ("altered", "spells a control token: taken as one"),
        "skip": ("skipped", "spells a control token: and special_in_content = 'skip'"),
    }
    ends = {"text": 2, "allow": 3}
    for special, (kind, reason) in reasons.items():
        file = write("a.jsonl", [{"messages": talk}, {"messages": [user("a"), answer("b")]}])
        parts = read(file, ChatProcessor(fix_tok, special_in_content=special))
        assert [(entry["source"], entry["kind"], entry["reason"]) for entry in ledger()] == [
            ("a.jsonl:1", kind, reason)
        ]
        assert "1 spells a control token" in parts.summary
        if special in ends:
            assert list(parts.kept[0].trunk.tokens).count(IM_END) == ends[special]
            assert [list(parts.kept[n].trunk.weights)[-4:] for n in (0, 1)] == [[0.0, 1.0, 1.0, 0.0]] * 2


def test_what_can_t_be_told_apart_may_still_be_allowed(taught) -> None:
    talk = [user("a", name="<|im_end|>"), answer("b")]
    assert taught(talk).startswith("spells a control token: in a name, a key or a tool")
    assert taught(talk, special_in_content="allow") == [("b<|im_end|>", 1.0)]


def test_a_tool_s_result_is_read_and_can_be_learned(taught, saved, template) -> None:
    talk = [
        user("a"),
        answer(None, tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]),
        {"role": "tool", "content": "7"},
        answer("b"),
    ]
    calls = (
        "{{ '<|im_start|>assistant\n' }}{% for c in message.tool_calls %}{{ c.function.name }}{% endfor %}"
        "{{ message.content + '<|im_end|>\n' }}"
    )
    tokenizer = saved(
        chat=template(assistant=calls).replace("'<|im_start|>user\n'", "'<|im_start|>' + message.role + '\n'")
    )
    assert taught(talk, tokenizer) == [("f<|im_end|>", 1.0), ("b<|im_end|>", 1.0)]
    assert taught(talk, tokenizer, learn_roles=("tool",)) == [("7<|im_end|>", 1.0)]


def test_a_role_that_templates_do_not_know_is_refused_at_once(fix_tok) -> None:
    with pytest.raises(ValueError, match=r"roles.bot: there is no role 'asistant'; known are assistant, developer, "):
        ChatProcessor(fix_tok, roles={"bot": "asistant"})
    with pytest.raises(ValueError, match=r"learn_roles: there is no role 'human'"):
        ChatProcessor(fix_tok, learn_roles=("human", "user"))
