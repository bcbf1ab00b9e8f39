"""Conversations of one structure are rendered once; the next ones are what transformers renders."""

import re
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from ike_data.messages import Talk
from ike_data.renderings import Renderings
from ike_data.row_error import RowError
from ike_data.spans import Rendering, TurnFinder
from ike_data.templates import ChatTemplate

TURN = "<|" + "{{ message.role }}" + "|>{% set content = message.content %}LOOK<|end|>"
WHOLE = "{% for message in messages %}" + TURN + "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
PASSED_ON = {
    "printed": "{{ content }}",
    "joined": "{{ '[' + content + ']' }}",
    "joined by ~": "{{ '[' ~ content ~ 1 ~ ']' }}",
    "trimmed": "{{ content | trim }}",
    "stripped": "{{ content.lstrip('\n') }}",
    "said twice over": "{% set ns = namespace(x='') %}{% set ns.x = ns.x + content %}{{ ns.x }}",
    "by a macro": "{% macro said(x) %}[{{ x }}]{% endmacro %}{{ said(content) | trim }}",
    "in a block": "{% set x %}[{{ content }}]{% endset %}{{ x.strip() }}",
    "if there is any": "{% if content and content is string and content is not mapping %}{{ content }}{% endif %}",
    "in a list": "{{ [content, 'b'][0] }}",
}
ASKED = {
    "how it starts": "{% if content.startswith('y') %}+{% endif %}{{ content }}",
    "how a block starts": "{% set x %}{{ content }}{% endset %}{{ '+' if x.startswith('y') }}{{ x }}",
    "what it holds": "{{ content + ('+' if 'es' in content else '-') }}",
    "what it is": "{{ content + ('+' if content == 'yes' else '-') }}",
    "what it is, backwards": "{{ content + ('+' if 'yes' == content else '-') }}",
    "what it is not": "{{ content + ('+' if content != 'yes' else '-') }}",
    "whether it is one of some": "{{ content + ('+' if content in ['yes', 'no'] else '-') }}",
    "what is behind something": "{{ content.split('::')[-1] }}",
    "with something for another": "{{ content.replace('::', '--') }}",
}
LOOKED_INTO = {
    "its length": "{{ content }}{{ content | length }}",
    "its length, after a block": "{% set x %}{{ content }}{% endset %}{{ content }}{{ x | length }}",
    "a letter": "{{ content }}{{ content[0] }}",
    "a piece": "{{ content }}{{ content[:2] }}",
    "letters": "{{ content }}{% for x in content %}{{ x }},{% endfor %}",
    "capitals": "{{ content }}{{ content | upper }}",
    "a whole block in capitals": "{% filter upper %}{{ content }}{% endfilter %}",
    "as JSON": "{{ content }}{{ [content] | tojson }}",
    "as a number": "{{ content }}{{ content | int }}",
    "in an order": "{{ content + ('+' if content > 'm' else '-') }}",
    "as a key": "{{ content + ({'yes': '+'}.get(content, '-')) }}",
    "as another's key": "{{ content }}{{ {'yes': '+'}[content] }}",
    "in a text": "{{ content + ('+' if content in 'yes no' else '-') }}",
    "formatted": "{{ content }}{{ '%s' | format(content) }}{{ '{}'.format(content) }}",
    "joined by a filter": "{{ [content, 'b'] | join(',') }}",
    "as one of a set": "{{ content }}{{ [content, 'yes'] | unique | list | length }}",
    "whether it changes": "{{ content + ('+' if loop.changed(content) else '-') }}",
    "where something is": "{{ content }}{{ content.find('s') }}",
}
TALKS = [
    [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    for asked in ("who", "yes", "no", "y::n")
    for answered in ("maybe", "yes", "a::b::c", "Yes", "yes")
]
CONTROL = re.compile(r"<\|\w+\|>")


def renderings(look: str) -> Renderings:
    return Renderings(TurnFinder(ChatTemplate(WHOLE.replace("LOOK", look), {}), CONTROL))


def found(those: Renderings, talk: list[dict[str, Any]]) -> Rendering | str:
    try:
        return those.find(Talk.said(*talk), [1])
    except RowError as reason:
        return str(reason)


@pytest.fixture
def rendered(monkeypatch) -> list[str]:
    """Grows by a text for each rendering."""
    texts = []
    render = ChatTemplate.render

    def counted(*arguments: Any, **options: Any) -> str:
        texts.append(render(*arguments, **options))
        return texts[-1]

    monkeypatch.setattr(ChatTemplate, "render", counted)
    return texts


@pytest.mark.parametrize("look", [*PASSED_ON.values(), *ASKED.values(), *LOOKED_INTO.values()])
def test_whatever_a_template_does_the_text_is_what_transformers_renders(look) -> None:
    those = renderings(look)
    for talk in TALKS * 2:
        (text,), _ = render_jinja_template([talk], chat_template=those.finder.template.source)
        rendering = found(those, talk)
        if isinstance(rendering, Rendering):
            assert rendering.text == text
            assert [text[start:end] for start, end in rendering.turns] == [text.rpartition("<|assistant|>")[2]]
        else:  # a text that is shown otherwise than it is: refused each time
            assert rendering.startswith(("can't tell whose text is whose: ", "the chat template "))


@pytest.mark.parametrize("look", PASSED_ON.values(), ids=PASSED_ON)
def test_a_text_that_is_passed_on_is_rendered_for_no_further_conversation(look, rendered) -> None:
    those = renderings(look)
    for talk in TALKS * 4:
        found(those, talk)
    before = len(rendered)
    for talk in TALKS:
        assert isinstance(found(those, talk), Rendering)
    assert len(rendered) - before <= 4  # at uses 64 and 128 the truth is looked at


@pytest.mark.parametrize("look", ASKED.values(), ids=ASKED)
def test_what_a_text_answered_is_asked_of_the_next_one(look) -> None:
    those = renderings(look)
    for talk in TALKS * 2:
        found(those, talk)
    (structure,) = those._structures.values()
    assert structure.skeletons
    assert all(skeleton.conditions for skeleton in structure.skeletons)


def test_there_is_a_skeleton_for_each_answer(rendered) -> None:
    those = renderings(ASKED["what it holds"])
    for talk in TALKS * 4:
        found(those, talk)
    (structure,) = those._structures.values()
    assert len(structure.skeletons) == 4  # "es" in what is asked, "es" in what is answered
    before = len(rendered)
    for talk in TALKS[:4]:
        found(those, talk)
    assert len(rendered) - before <= 4


@pytest.mark.parametrize("look", LOOKED_INTO.values(), ids=LOOKED_INTO)
def test_a_text_that_is_looked_into_is_rendered_for_every_conversation(look, rendered) -> None:
    those = renderings(look)
    for talk in TALKS:
        found(those, talk)
    assert [structure.skeletons for structure in those._structures.values()] == [[]]
    assert len(rendered) >= len(TALKS)


def test_a_skeleton_that_is_wrong_is_found_out() -> None:
    those = renderings("{{ content }}")
    for talk in TALKS[:2]:
        found(those, talk)
    (structure,) = those._structures.values()
    (skeleton,) = structure.skeletons
    skeleton.turns = (((0, 0), (0, 1)),)
    with pytest.raises(AssertionError, match="otherwise than the chat template"):
        found(those, TALKS[2])
