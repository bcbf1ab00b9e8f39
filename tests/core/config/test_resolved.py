"""Rule 8: what ran is what is written, and it is the same run when given back."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import tomli
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ike_core.config import load_config
from ike_core.errors import ConfigError

Write = Callable[..., Path]

RUN = """
[run]
name = "dpo-b{objective.beta}"
[model]
path = "owner/name"
train = ["layers.1", "{run.seed}"]
[data.train]
files = ["chat/*.jsonl"]
processor = { uses = "resolved_lab:Chat", words = "words.txt", text = "{{run.name}}" }
[data.valid.helpful]
files = ["valid.jsonl"]
[data.holdout]
share = 0.1
[objective]
uses = "resolved_lab:Focal"
beta = 0.5
[optimizer.groups.head]
match = "score"
[length]
steps = 3
[cadence]
save = { steps = 100 }
"""
LAB = "import attrs\nfrom pathlib import Path\n@attrs.frozen\nclass Chat:\n    words: Path\n    text: str = ''\n"


def test_the_written_settings_are_the_same_run(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("cfg/resolved_lab.py", LAB)
    overrides = ("batch.examples_per_step=8", "~trackers.console", "run.group=12")
    config = load_config(write("cfg/run.toml", RUN), *overrides)
    written = write("runs/one/config.toml", config.to_toml())
    monkeypatch.chdir("/")
    again = load_config(written)
    assert again.tree == config.tree
    assert again.fingerprint() == config.fingerprint()
    assert again.identity_fingerprint() == config.identity_fingerprint()
    assert load_config(written).to_toml() == again.to_toml()
    assert list(again.trackers) == ["lines"]
    assert again.import_from == (written.parents[2] / "cfg",)
    processor = again.data.valid["helpful"].processor
    assert processor is not None
    assert processor.table == {"words": str(written.parents[2] / "cfg/words.txt"), "text": "{run.name}"}


def test_every_value_is_written_with_its_origin(write: Write) -> None:
    lines = load_config(write("run.toml", RUN), "run.seed=5").to_toml().splitlines()
    assert 'name = "dpo-b0.5"  # run.toml:3' in lines
    assert "seed = 5  # override" in lines
    assert "examples_per_step = 64  # default" in lines
    values = [line for line in lines if " = " in line]
    assert all("  # " in line for line in values)


def test_an_override_over_the_written_settings_wins(write: Write) -> None:
    written = write("config.toml", load_config(write("run.toml", RUN)).to_toml())
    config = load_config(written, "length.epochs=2", "objective.uses=resolved_lab:Other")
    assert config.tree["length"] == {"epochs": 2}
    assert config.objective is not None
    assert config.objective.table == {}


_NAMES = st.one_of(st.from_regex(r"[a-z_-]{1,5}", fullmatch=True), st.text(max_size=4))
_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["{run.name}", "{{run.name}}", "{{{run.seed}}", "{x}", 'a"b\\', "'''", "a\nb = 1", "\x7f\x01"]),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC])),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(_NAMES.filter(lambda name: name != "uses"), _VALUES, max_size=4))
def test_whatever_a_user_says_survives_being_written(tmp_path: Path, user: dict[str, Any]) -> None:
    """[user] may hold anything; a name that looks like a reference but gives no value is another test's matter."""
    file, written = tmp_path / "run.toml", tmp_path / "config.toml"
    file.write_text(tomli_w.dumps({"user": user, "run": {"name": "x"}}))
    config = load_config(file)
    written.write_text(config.to_toml())
    again = load_config(written)
    assert again.tree == config.tree
    assert again.fingerprint() == config.fingerprint()


def test_the_fingerprint_is_of_every_value_and_of_no_order(write: Write) -> None:
    one = load_config("run.seed=1", "run.group=a")
    assert one.fingerprint() == load_config("run.group=a", "run.seed=1").fingerprint()
    assert one.fingerprint() != load_config("run.group=b", "run.seed=1").fingerprint()


def test_the_identity_fingerprint_is_of_what_changes_an_update(write: Write) -> None:
    base = load_config("objective.uses=lab:X").identity_fingerprint()
    mechanics = [
        *("run.name=other", "batch.tokens_per_device=99", "engine.zero_stage=3", "user.x=1", "length.steps=5"),
        *("data.valid.a.files=['x']", "launch.ranks=4", "~trackers.console", "checkpoint.keep_last=9"),
        "engine.uses=ike_core.runtime:PlainTorch",
    ]
    identity = [
        *("run.seed=1", "batch.examples_per_step=8", "objective.beta=1", "engine.precision=bf16", "engine.raw.a=1"),
        *("data.train.files=['x']", "hooks.ema.uses=lab:EMA", "schedule.shape=linear", "optimizer.peak_lr=1"),
    ]
    for override in mechanics:
        assert load_config("objective.uses=lab:X", override).identity_fingerprint() == base, override
    for override in identity:
        assert load_config("objective.uses=lab:X", override).identity_fingerprint() != base, override


# -- secrets ------------------------------------------------------------------------------------------------------


def test_a_secret_is_read_when_the_part_is_built_and_never_written(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B31: the key stays, the value does not, and the written file works again where the variable is set."""
    write("secret_lab.py", "import attrs\n@attrs.frozen\nclass Hub:\n    token: str\n    name: str = ''\n")
    file = write("run.toml", '[trackers.hub]\nuses = "secret_lab:Hub"\ntoken = { env = "HUB_TOKEN" }')
    monkeypatch.setenv("HUB_TOKEN", "hf_SECRETabc123")
    config = load_config(file, 'trackers.hub.name={env="HUB_TOKEN"}')
    assert config.trackers["hub"].build().token == "hf_SECRETabc123"
    for text in (config.to_toml(), repr(config), config.explain("trackers"), str(config.tree)):
        assert "SECRETabc123" not in text
    with_another = config.fingerprint()
    monkeypatch.setenv("HUB_TOKEN", "hf_SECRETother")
    again = load_config(write("config.toml", config.to_toml()))
    assert again.fingerprint() == with_another
    assert again.trackers["hub"].build().name == "hf_SECRETother"
    monkeypatch.delenv("HUB_TOKEN")
    again = load_config(write("config.toml", config.to_toml()))  # without the variable it still loads
    with pytest.raises(
        ConfigError, match=r"trackers\.hub\.token is read from the environment variable HUB_TOKEN, which"
    ):
        again.trackers["hub"].build()


# -- [user] -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Mine:
    rows: int
    folder: Path = Path(".")
    label: str = "x"
    shares: tuple[float, ...] = ()


def test_a_scripts_own_settings_follow_the_same_rules(write: Write) -> None:
    file = write("cfg/run.toml", '[user]\nrows = 3\nfolder = "data"\nshares = [1, 0.5]')
    config = load_config(file, "user.label=12", user=Mine)
    assert config.user == Mine(rows=3, folder=Path.cwd() / "cfg/data", label="12", shares=(1.0, 0.5))
    again = load_config(write("config.toml", config.to_toml()), user=Mine)
    assert again.user == config.user
    assert load_config(file).user == {"rows": 3, "folder": "data", "shares": [1, 0.5]}


def test_a_scripts_own_settings_are_as_strict(write: Write) -> None:
    file = write("run.toml", '[user]\nrows = "3"\nfoldr = "data"')
    with pytest.raises(ConfigError) as caught:
        load_config(file, user=Mine)
    assert "user.rows = '3' must be an integer; without quotes: 3 (run.toml:2)" in str(caught.value)
    assert "user.foldr is no field of" in str(caught.value)
    assert "nearest: folder (run.toml:3)" in str(caught.value)


def test_written_settings_are_toml(write: Write) -> None:
    config = load_config(write("run.toml", RUN))
    assert tomli.loads(config.to_toml()).keys() == config.tree.keys()
