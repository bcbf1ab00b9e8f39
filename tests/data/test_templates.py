"""Chat templates are rendered as transformers renders them."""

import time
from datetime import date

import pytest

from ike_core import DataError
from ike_data.row_error import RowError
from ike_data.templates import GENERATION, ChatTemplate

MESSAGES = [
    {"role": "system", "content": "Be <brief> & \u00e9."},
    {"role": "user", "content": "a"},
    {
        "role": "assistant",
        "content": "b",
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, None, "\u00fc<"]}}}],
    },
]
TOOLS = [{"name": "f", "parameters": {"x": {"type": "array", "default": None}}}]
FEATURES = {
    "names": "{{ bos_token }}{{ messages|length }}{{ undefined_name }}{{ documents is none }}",
    "json": "{{ tools | tojson }}\n{{ messages[2].tool_calls | tojson(indent=2) }}{{ messages[0].content | tojson }}",
    "white space": "  {% for m in messages %}\n    {% if m.role %}\n  {{ m.role }}\n    {% endif %}\n{% endfor %}\n",
    "loops": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.last %}{% break %}{% endif %}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}|{% endfor %}",
    "macro": "{% macro show(m) %}[{{ m.content | trim }}]{% endmacro %}{{ show(messages[0]) }}{{ show(messages[1]) }}",
    "prompt": "{% if add_generation_prompt %}>{% endif %}{{ messages[-1]['role'] }}",
}


@pytest.mark.parametrize("source", FEATURES.values(), ids=FEATURES)
@pytest.mark.parametrize("prompt", [False, True])
def test_a_template_renders_as_transformers_renders_it(source, prompt) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    theirs, _ = render_jinja_template(
        [MESSAGES], tools=TOOLS, chat_template=source, add_generation_prompt=prompt, bos_token="<s>"
    )
    ours = ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES, TOOLS, add_generation_prompt=prompt)
    assert [ours] == theirs


def test_what_is_generated_can_be_marked() -> None:
    template = ChatTemplate(FEATURES["generation"], {})
    opening, closing = GENERATION
    marked = template.render(MESSAGES[1:], None, marked=True)
    assert marked == f"{opening}a{closing}|{opening}b{closing}|"


def test_a_template_gets_no_date() -> None:
    # The same rows must be the same data tomorrow; templates of Llama 3.2 ask, and fall back on a date of their own.
    assert (
        ChatTemplate("{% if strftime_now is defined %}today{% else %}fixed{% endif %}", {}).render([], None) == "fixed"
    )
    with pytest.raises(RowError, match="UndefinedError: 'strftime_now' is undefined"):
        ChatTemplate("{{ strftime_now('%Y') }}", {}).render([], None)


def test_a_template_gets_the_date_that_is_given() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", {}, date(2026, 1, 31))
    assert template.render([], None) == "31 Jan 2026"


MACRO = "{% macro f(n) %}{{ f(n + 1) if n < 40 }}{{ f(n + 1) if n < 40 }}{% endmacro %}{{ f(0) }}"  # 2^40 calls
ENDLESS = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a macro that calls itself twice": MACRO,
    "a loop calling itself": "{% for a in range(999) recursive %}{{ loop(range(9)) if loop.depth < 40 }}{% endfor %}",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_a_template_that_does_not_end_is_an_error(source, monkeypatch) -> None:
    monkeypatch.setattr("ike_data.time_limit.LIMIT_SECONDS", 0.2)
    started = time.monotonic()
    with pytest.raises(DataError, match="the chat template does not end: it ran longer than"):
        ChatTemplate(source, {}).render(MESSAGES, None)
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("source", ["{{ 'x' * 999999999 }}", "{{ 9 ** 9 ** 9 }}", "{{ [1] * 99999999 }}"])
def test_a_template_that_makes_too_much_of_something_is_refused(source) -> None:
    with pytest.raises(RowError, match="the chat template refuses it: OverflowError"):
        ChatTemplate(source, {}).render([], None)


def test_arithmetic_is_left_alone() -> None:
    assert ChatTemplate("{{ 2 * 3 }}{{ '-' * 3 }}{{ 2 ** 8 }}{{ [1] * 2 }}", {}).render([], None) == "6---256[1, 1]"
