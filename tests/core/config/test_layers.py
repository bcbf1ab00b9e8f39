"""Rules 1 to 4: what is laid over what, and what an override's text means."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ike_core.config import load_config
from ike_core.errors import ConfigError

Write = Callable[..., Path]


def test_later_wins_by_presence_not_by_value(write: Write) -> None:
    """B23: 64 is ike's own default, and still wins over 4 when it is said later."""
    base, over = (
        write("base.toml", "[batch]\nexamples_per_step = 4"),
        write("over.toml", "[batch]\nexamples_per_step = 64"),
    )
    assert load_config(base, over).batch.examples_per_step == 64
    config = load_config(base, "batch.examples_per_step=64")
    assert config.batch.examples_per_step == 64
    assert config.explain("batch.examples_per_step") == (
        "batch.examples_per_step = 64  (override batch.examples_per_step=64; identity)\n"
        "  overrode batch.examples_per_step = 4  (base.toml:2)"
    )


def test_layers_are_laid_left_to_right_and_overrides_last_wherever_they_stand(write: Write) -> None:
    one, two = write("one.toml", "[run]\nseed = 1\nname = 'one'"), write("two.toml", "[run]\nseed = 2")
    assert load_config(one, two).run.seed == 2
    assert load_config(two, one).run.seed == 1
    config = load_config("run.seed=3", one, two)
    assert (config.run.seed, config.run.name) == (3, "one")
    assert load_config("run.seed=3", "run.seed=4").run.seed == 4


def test_what_a_layer_extends_lies_just_under_it(write: Write) -> None:
    write("shared/base.toml", "[run]\nseed = 1\ngroup = 'base'\nname = 'base'")
    write("shared/middle.toml", 'extends = ["base.toml"]\n[run]\ngroup = "middle"\nname = "middle"')
    top = write("top.toml", 'extends = ["shared/middle.toml"]\n[run]\nname = "top"')
    run = load_config(top).run
    assert (run.seed, run.group, run.name) == (1, "middle", "top")


def test_a_file_already_laid_keeps_its_first_place(write: Write) -> None:
    base = write("base.toml", "[run]\nseed = 1")
    one = write("one.toml", 'extends = ["base.toml"]\n[run]\nseed = 2')
    two = write("two.toml", 'extends = ["base.toml"]\n[run]\ngroup = "two"')
    run = load_config(one, two, base).run
    assert (run.seed, run.group) == (2, "two")  # base.toml again, under two.toml or last, would make it 1


def test_a_byte_order_mark_before_the_first_key_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf[run]\r\nseed = 3\r\n")
    config = load_config(tmp_path / "marked.toml")
    assert (config.run.seed, config.origin("run.seed").line) == (3, 2)


def test_extending_in_a_circle_names_the_chain(write: Write) -> None:
    write("a.toml", 'extends = ["b.toml"]')
    b = write("b.toml", 'extends = ["a.toml"]')
    with pytest.raises(ConfigError, match=r"extends goes in a circle: b\.toml -> a\.toml -> b\.toml"):
        load_config(b)


def test_a_removal_takes_out_an_inherited_table(write: Write) -> None:
    file = write("run.toml", '[trackers.wandb]\nuses = "lab:Wandb"\nproject = "x"')
    config = load_config(file, "~trackers.wandb", "~trackers.console")
    assert list(config.trackers) == ["lines"]
    fresh = load_config(file, "trackers.wandb.uses=lab:Other", "~trackers.wandb").trackers["wandb"]
    assert (fresh.uses, fresh.table) == ("lab:Other", {})
    with pytest.raises(ConfigError, match=r"trackers\.wand is nothing that could be removed; nearest: trackers\.wandb"):
        load_config(file, "~trackers.wand")


def test_tables_merge_scalars_and_arrays_replace(write: Write) -> None:
    base = write("base.toml", '[data.train]\nfiles = ["a.jsonl", "b.jsonl"]\nlimit = 3\n[engine.raw]\na = 1\nb = [1]')
    over = write("over.toml", '[data.train]\nfiles = ["c.jsonl"]\n[engine.raw]\nb = []')
    config = load_config(base, over)
    assert config.data.train is not None
    assert [Path(file).name for file in config.data.train.files] == ["c.jsonl"]
    assert config.data.train.limit == 3
    assert config.engine.part.table == {"raw": {"a": 1, "b": []}}


@pytest.mark.parametrize(
    ("said", "later", "stands"),
    [
        ("length.epochs=3", "length.steps=5", {"steps": 5}),
        ("length.steps=5", "length.epochs=3", {"epochs": 3}),
        ("cadence.save={epochs=1}", "cadence.save.steps=7", {"steps": 7}),
        ("data.holdout.count=50", "data.holdout.share=0.5", {"share": 0.5}),
    ],
)
def test_a_later_alternative_takes_out_the_others(
    write: Write, said: str, later: str, stands: dict[str, float]
) -> None:
    key, _, value = said.replace("={", ".").replace("}", "").rpartition("=")
    base = write("base.toml", f"{key} = {value}")
    tree = load_config(base, later).tree
    for part in later.partition("=")[0].split(".")[:-1]:
        tree = tree[part]
    assert tree == stands


def test_explain_tells_what_an_alternative_took_out(write: Write) -> None:
    base = write("base.toml", "[length]\nepochs = 3")
    assert load_config(base, "length.steps=5").explain("length.steps").splitlines() == [
        "length.steps = 5  (override length.steps=5; mechanics)",
        "  overrode length.epochs = 3  (base.toml:2)",
    ]


def test_two_alternatives_in_one_layer_are_an_error(write: Write) -> None:
    both = write("both.toml", "[length]\nepochs = 1\nsteps = 2\n[model]\nfreeze = ['a']\ntrain = ['b']")
    with pytest.raises(ConfigError) as caught:
        load_config(both)
    assert "length is given epochs = 1 (both.toml:2) and steps = 2 (both.toml:3); say one of them" in str(caught.value)
    assert "model is given freeze = ['a'] (both.toml:5) and train = ['b'] (both.toml:6)" in str(caught.value)


def test_a_table_that_needs_an_alternative_says_so(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"data\.holdout needs one of count and share \(run\.toml:1\)"):
        load_config(write("run.toml", "[data.holdout]"))


def test_a_table_whose_uses_changes_starts_empty(write: Write) -> None:
    base = write("base.toml", '[objective]\nuses = "ike_tasks:DPO"\nbeta = 0.1\n[optimizer]\nweight_decay = 0.5')
    over = write("over.toml", '[objective]\ngamma = 2.0\nuses = "lab:Focal"')  # wherever `uses` stands in the layer
    config = load_config(base, over, "optimizer.uses=ike_core.runtime:SGD")
    assert config.objective is not None
    assert (config.objective.uses, config.objective.table) == ("lab:Focal", {"gamma": 2.0})
    assert config.optimizer.part.table == {}  # it was the default AdamW's


def test_the_same_uses_again_changes_nothing(write: Write) -> None:
    base = write("base.toml", '[objective]\nuses = "ike_tasks:DPO"\nbeta = 0.1\n[optimizer]\nweight_decay = 0.5')
    config = load_config(base, "objective.uses=ike_tasks:DPO", "optimizer.uses=ike_core.runtime:AdamW")
    assert config.objective is not None
    assert config.objective.table == {"beta": 0.1}
    assert config.optimizer.part.table == {"weight_decay": 0.5}


def test_a_scripts_own_uses_is_a_key_like_any_other(write: Write) -> None:
    base = write("base.toml", '[user]\nuses = "one"\nkept = 1')
    assert load_config(base, "user.uses=two").user == {"uses": "two", "kept": 1}


def test_validation_sets_take_processor_and_lengths_from_training_data(write: Write) -> None:
    file = write(
        "run.toml",
        """
[data.train]
files = ["train.jsonl"]
limit = 10
max_tokens = 100
processor = { uses = "lab:Chat", system = "be brief", strict = true }
[data.valid.plain]
files = ["a.jsonl"]
[data.valid.own]
files = ["b.jsonl"]
max_tokens = 200
processor = { system = "be long" }
[data.valid.other]
files = ["c.jsonl"]
processor = { uses = "lab:Other" }
""",
    )
    config = load_config(file)
    plain, own, other = (config.data.valid[name] for name in ("plain", "own", "other"))
    assert plain.processor is not None
    assert own.processor is not None
    assert other.processor is not None
    assert (plain.max_tokens, plain.limit) == (100, 0)  # never its limit
    assert plain.processor.table == {"system": "be brief", "strict": True}
    assert (own.max_tokens, own.processor.uses) == (200, "lab:Chat")
    assert own.processor.table == {"system": "be long", "strict": True}
    assert (other.processor.uses, other.processor.table) == ("lab:Other", {})
    assert "run.toml:5" in config.explain("data.valid.plain.max_tokens")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("123", "123"),
        ('"123"', "123"),
        ("'a b'", "a b"),
        ("1.0-rc", "1.0-rc"),
        ("2026-01-31", "2026-01-31"),
        ("true", "true"),
    ],
)
def test_an_override_of_a_string_is_its_raw_text_unless_quoted(text: str, value: str) -> None:
    assert load_config(f"run.group={text}").run.group == value


def test_an_override_is_toml_and_what_does_not_parse_is_a_string() -> None:
    config = load_config(
        "batch.examples_per_step=8", "cadence.save={steps=3}", "objective.uses=lab:Focal", "objective.x=[1,"
    )
    assert config.batch.examples_per_step == 8
    assert config.cadence.save is not None
    assert config.cadence.save.steps == 3
    assert config.objective is not None
    assert config.objective.table == {"x": "[1,"}
    assert load_config("user.x=1\ny = 2").user == {"x": "1\ny = 2"}  # one value, or none


def test_the_command_line_is_read_where_nothing_is_given(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("run.toml", "[run]\nseed = 5")
    monkeypatch.setattr("sys.argv", ["train.py", "run.toml", "run.name=mine"])
    run = load_config().run
    assert (run.seed, run.name) == (5, "mine")


def test_an_option_is_refused_with_the_right_form() -> None:
    with pytest.raises(ConfigError, match=r"--seed=3: no such option; settings are given as .* key\.path=value"):
        load_config("--seed=3")
