"""Rule 7: {section.key} in a string."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ike_core.config import load_config
from ike_core.errors import ConfigError

Write = Callable[..., Path]


def group(write: Write, text: str, *more: str) -> str:
    """What run.group = `text` comes to."""
    return load_config(write("run.toml", f"[run]\ngroup = '{text}'"), *more).run.group


def test_a_name_is_replaced_by_its_value_as_toml_spells_it(write: Write) -> None:
    more = ("objective.uses=lab:DPO", "objective.beta=0.1", "objective.fast=true", "run.name=a")
    assert group(write, "{run.name}-b{objective.beta}-{objective.fast}", *more) == "a-b0.1-true"


def test_defaults_and_chains_can_be_named(write: Write) -> None:
    assert group(write, "n{batch.examples_per_step} {run.name}", "run.name=s{run.seed}") == "n64 s17"
    assert group(write, "{user.x}", "user.x=y") == "y"


@pytest.mark.parametrize("text", ["{x}", "{ run.name }", "{run}", "{elsewhere.name}", "{{ messages }}", "{", "}", "{}"])
def test_other_braces_stay(write: Write, text: str) -> None:
    assert group(write, text) == text


@pytest.mark.parametrize(
    ("text", "stands"),
    [("{{run.name}}", "{run.name}"), ("{{{run.name}}}", "{{run.name}}"), ("{{run.name}}-{run.name}", "{run.name}-run")],
)
def test_doubled_braces_stand_for_the_name_itself(write: Write, text: str, stands: str) -> None:
    assert group(write, text) == stands


def test_patterns_and_globs_are_left_alone(write: Write) -> None:
    pattern = "{run.seed}"
    file = write(
        "run.toml",
        f"""
[model]
uses = "lab:Net"
freeze = ["{pattern}"]
note = "{pattern}"
[data.train]
files = ["{pattern}.jsonl"]
[optimizer.groups.head]
match = "{pattern}"
""",
    )
    config = load_config(file)
    assert config.model is not None
    assert config.data.train is not None
    assert config.model.freeze == (pattern,)
    assert config.data.train.files[0].endswith("/{run.seed}.jsonl")
    assert config.optimizer.groups["head"].match == pattern
    assert config.model.part.table == {"note": "17"}


def test_strings_inside_arrays_and_tables_are_filled(write: Write) -> None:
    config = load_config("objective.uses=lab:X", 'objective.tags=["s{run.seed}"]', 'objective.deep={a="{run.seed}"}')
    assert config.objective is not None
    assert config.objective.table == {"tags": ["s17"], "deep": {"a": "17"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{run.nmae}", "run.group: {run.nmae} is no key; nearest: run.name"),
        ("{objective.beta}", "run.group: {objective.beta} is no key"),
        ("{run.group}", "run.group: {run.group} is made of itself: run.group -> run.group"),
        ("{cadence.log}", "run.group: {cadence.log} is a table; only a single value can stand in a string"),
    ],
)
def test_a_name_that_gives_no_value_is_an_error_with_its_line(write: Write, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        group(write, text)
    assert str(caught.value).startswith(said)
    assert "(run.toml:2)" in str(caught.value)


def test_a_circle_names_all_its_links(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"run\.name -> user\.x -> run\.name"):
        load_config(write("run.toml", '[run]\nname = "{user.x}"\n[user]\nx = "{run.name}"'))
