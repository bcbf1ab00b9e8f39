"""Rule 5: no coercion, no unknown key, and everything that is wrong at once, with its file and line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ike_core.config import load_config
from ike_core.errors import ConfigError

Write = Callable[..., Path]


def refusal(*arguments: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(*arguments)
    return str(caught.value)


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_key(write: Write) -> None:
    """B07"""
    file = write("run.toml", "[batch]\n\nexmaples_per_step = 4\n")
    expected = "batch.exmaples_per_step is no known key; nearest: batch.examples_per_step"
    assert refusal(file).startswith(expected)
    assert refusal(file).endswith("(run.toml:3)")


def test_a_key_in_a_table_that_is_not_ikes_is_named_in_full_with_where_it_belongs(write: Write) -> None:
    """B07: [train] learing_rate"""
    file = write("run.toml", "[train]\nlearing_rate = 1e-4\nexamples_per_step = 8\n")
    said = refusal(file)
    assert "train.learing_rate is no known key" in said
    assert "(run.toml:2)" in said
    assert "train.examples_per_step is no known key; nearest: batch.examples_per_step" in said
    assert "(run.toml:3)" in said


@pytest.mark.parametrize("key", ["length.patience", "launch.hosts", "run.notes", "evaluate.x.output"])
def test_keys_whose_code_is_not_built_yet_are_unknown(key: str) -> None:
    said = refusal(f"{key}=1", "model.uses=lab:Net", "evaluate.x.uses=lab:T", 'evaluate.x.files=["a"]')
    assert f"{key} is no known key" in said


@pytest.mark.parametrize("key", ["freeze", "train"])
def test_lora_says_alone_what_learns(key: str) -> None:
    said = refusal("model.path=base", "model.lora.rank=4", f"model.{key}=['norm']")
    assert f"'lora' freezes all of the model, so '{key}' can't be said as well" in said
    assert "lora.modules_to_save" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"1e-4"', "optimizer.peak_lr = '1e-4' must be a number; without quotes: 1e-4"),
        ("true", "optimizer.peak_lr = true must be a number"),
        ("nan", "optimizer.peak_lr = nan is no finite number"),
        ("inf", "optimizer.peak_lr = inf is no finite number"),
        ("-1.0", "optimizer.peak_lr = -1.0 must be >= 0.0"),
        ("[1e-4]", "optimizer.peak_lr = [0.0001] must be a number"),
    ],
)
def test_no_number_is_made_of_what_is_none(write: Write, value: str, said: str) -> None:
    """B09, in a file and as an override."""
    file = write("run.toml", f"[optimizer]\npeak_lr = {value}")
    assert refusal(file).startswith(said)
    assert "(run.toml:2)" in refusal(file)
    assert refusal(f"optimizer.peak_lr={value}").startswith(said)


def test_numbers_are_what_they_say(write: Write) -> None:
    """B09: 1e-4 exactly, from a file and from an override; an integer is a fine float."""
    assert load_config(write("run.toml", "[optimizer]\npeak_lr = 1e-4")).optimizer.peak_lr == 1e-4
    assert load_config("optimizer.peak_lr=1e-4").optimizer.peak_lr == 1e-4
    peak = load_config("optimizer.peak_lr=1").optimizer.peak_lr
    assert (peak, type(peak)) == (1.0, float)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("run.seed=2.7", "run.seed = 2.7 must be an integer"),
        ("run.seed=2.0", "run.seed = 2.0 must be an integer"),
        ("run.seed=-1", "run.seed = -1 must be >= 0"),
        ("run.seed=9223372036854775808", "run.seed = 9223372036854775808 must be < 9223372036854775808"),
        ("run.seed=true", "run.seed = true must be an integer"),
        ("model.activation_checkpointing=False", "must be true or false"),
        ("model.activation_checkpointing=1", "must be true or false"),
        ("batch.packing=of", 'batch.packing = \'of\' must be "auto" or "required" or "off"; nearest: off'),
        ("launch.ranks=many", "launch.ranks = 'many' must be an integer or \"auto\""),
        ("launch.ranks=true", 'launch.ranks = true must be an integer or "auto"'),
        ("data.train.files=a.jsonl", 'must be an array, each a string; in brackets: ["a.jsonl"]'),
        ("data.train.files=[1]", "data.train.files[0] = 1 must be a string"),
        ("run=5", "run = 5 must be a table"),
        ("cadence.log=10", "cadence.log = 10 must be a table"),
        ("objective.beta=1", 'objective needs uses = "module:Name"'),
        ("objective.uses=ike_tasks.SFT", "objective.uses = 'ike_tasks.SFT' must read \"module:Name\""),
        ("user=5", "user = 5 must be a table"),
        ("objective.raw=nan", "objective.raw = nan is no finite number"),
        ("run.name=a/b", "run.name = 'a/b' must match regex"),
        ('model.freeze=["("]', "which is no regular expression"),
        ("data.valid.train.files=['a']", "data.valid can't have a set named train"),
        ("run.group={env='X'}", "only a part's own fields are read from the environment"),
    ],
)
def test_what_can_not_be_used_is_refused(override: str, said: str) -> None:
    assert said in refusal(override, "model.path=owner/name")


def test_a_table_that_is_not_complete_names_what_is_missing(write: Write) -> None:
    file = write(
        "run.toml",
        '[data.train.sources.a]\nlimit = 1\n[optimizer.groups.head]\nlr_scale = 2\n[inference]\nfiles = ["a"]',
    )
    said = refusal(file)
    assert "data.train.sources.a needs one of files and source (run.toml:1)" in said
    assert "optimizer.groups.head.match is missing (run.toml:3)" in said
    assert "inference.output is missing (run.toml:5)" in said


def test_everything_wrong_is_said_at_once_each_with_its_place(write: Write) -> None:
    base = write("base.toml", "[run]\nseed = -1\nnmae = 'x'\n[optimizer]\npeak_lr = \"fast\"\nweight_decay = nan")
    over = write("over.toml", "[batch]\ntokens_per_device = 1\nexamples_per_step = 0\n[lenght]\nsteps = 3")
    said = refusal(base, over, "engine.precision=fp8").splitlines()
    assert said[0] == "8 settings can't be used:"
    places = sorted(line[line.rindex("(") :] for line in said[1:])
    assert places == [
        "(base.toml:2)",
        "(base.toml:3)",
        "(base.toml:5)",
        "(base.toml:6)",
        "(over.toml:2)",
        "(over.toml:3)",
        "(over.toml:5)",
        "(override engine.precision=fp8)",
    ]


def test_a_file_that_is_no_toml_is_named_with_its_line(write: Write) -> None:
    file = write("run.toml", "[run]\nname = dpo\n")
    assert refusal(file).startswith("run.toml is no TOML: ")
    assert "line 2" in refusal(file)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"run": {"seed": 3}}, "load_config was given a dict, {'run': {'seed': 3}}; it takes files, key.path=value"),
        (7, "load_config was given a int, 7; it takes files, key.path=value and ~table"),
    ],
)
def test_what_is_no_layer_is_refused(given: Any, said: str) -> None:
    assert refusal(given).startswith(said)


def test_the_users_class_is_one_of_attrs() -> None:
    with pytest.raises(ConfigError, match=r"takes an attrs class, not <class 'int'>; decorate one by @attrs.frozen"):
        load_config("run.seed=3", user=int)
