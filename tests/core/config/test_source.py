"""Promise 3: a part's fields are read from its source; nothing is imported."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ike_core.config import check_parts_by_source, load_config
from ike_core.config.source import read_part
from ike_core.errors import ConfigError

Write = Callable[..., Path]

LOUD = "raise RuntimeError('this module was imported')\n"


@pytest.fixture
def package(write: Write) -> Path:
    """A package that re-exports, lazily and not, classes that inherit from each other."""
    write(
        "source_lab/__init__.py",
        LOUD + "from typing import TYPE_CHECKING\n"
        "from source_lab.losses import Focal as Renamed\n"
        "from .losses import Sharper\n"
        "if TYPE_CHECKING:\n    from source_lab.lazy import Late\n"
        "def __getattr__(name): ...\n",
    )
    write(
        "source_lab/losses.py",
        LOUD
        + """
import attr
import attrs
from pathlib import Path
from typing import ClassVar
from source_lab.base import Weighted
@attrs.define(frozen=True)
class Focal(Weighted):
    gamma: float = 2.0
    _hidden: int = 0
    other: int = attrs.field(default=1, alias="said")
    words: "Path | None" = None
    made: int = attrs.field(init=False, default=0)
    shared: ClassVar[int] = 0
    LIMIT = 3
    old = attr.ib(default=1)
    needed: str = attrs.field(validator=attrs.validators.min_len(1))
class Sharper(Focal):
    pass
@attrs.frozen
class Round(Round2):
    x: int = 0
@attrs.frozen
class Round2(Round):
    y: int = 0
@attrs.frozen
class Odd(Unknown):
    x: int = 0
@odd_decorator
class Decorated:
    x: int = 0
def function(model, samples): ...
made = make()
""",
    )
    write("source_lab/base.py", "import attrs\n@attrs.frozen\nclass Weighted:\n    weight: float = 1.0\n")
    write("source_lab/lazy.py", "import attrs\n@attrs.frozen\nclass Late:\n    when: int = 0\n")
    return Path.cwd()


FOCAL = {"weight", "gamma", "hidden", "said", "words", "old", "needed"}


@pytest.mark.parametrize(
    ("uses", "fields"),
    [
        ("source_lab.losses:Focal", FOCAL),
        ("source_lab:Renamed", FOCAL),
        ("source_lab:Sharper", FOCAL),
        ("source_lab:Late", {"when"}),
        ("source_lab.losses:function", set()),
        ("source_lab.losses:Odd", None),
        ("source_lab.losses:Round", None),
        ("source_lab.losses:Decorated", None),
        ("source_lab.losses:made", None),
        ("source_lab:MadeByGetattr", None),
    ],
)
def test_fields_are_those_that_attrs_would_take(package: Path, uses: str, fields: set[str] | None) -> None:
    source = read_part(uses, [package])
    assert (None if source.fields is None else set(source.fields)) == fields
    assert "source_lab" not in sys.modules


def test_defaults_and_annotations_are_kept_as_text(package: Path) -> None:
    fields = read_part("source_lab:Renamed", [package]).fields
    assert fields is not None
    assert (fields["gamma"].annotation, fields["gamma"].default) == ("float", "2.0")
    assert (fields["words"].annotation, fields["words"].default) == ("Path | None", "None")
    assert (fields["said"].default, fields["needed"].default) == ("1", None)


def test_ikes_own_parts_can_be_read() -> None:
    optimizer = read_part("ike_core.runtime:AdamW", []).fields
    assert optimizer is not None
    assert "weight_decay" in optimizer
    schedule = read_part("ike_core:Schedule", []).fields
    assert schedule is not None
    assert {"shape", "warmup_steps", "final_share"} <= set(schedule)


def test_an_unknown_field_is_found_without_importing_anything(package: Path, write: Write) -> None:
    file = write("run.toml", '[objective]\nuses = "source_lab:Renamed"\ngama = 1\n[optimizer]\nweigth_decay = 0.1')
    with pytest.raises(ConfigError) as caught:
        check_parts_by_source(load_config(file))
    said = str(caught.value)
    assert "objective.gama is no field of source_lab:Renamed; nearest: gamma (run.toml:3)" in said
    assert "optimizer.weigth_decay is no field of ike_core.runtime:AdamW; nearest: weight_decay (run.toml:5)" in said
    assert "source_lab" not in sys.modules


def test_wrong_keys_of_ikes_own_and_of_a_part_are_said_at_once(package: Path, write: Write) -> None:
    file = write("run.toml", '[objective]\nuses = "source_lab:Renamed"\ngama = 1\n[batch]\npackin = "off"')
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).splitlines()[1:] == [
        "  batch.packin is no known key; nearest: batch.packing (run.toml:5)",
        "  objective.gama is no field of source_lab:Renamed; nearest: gamma (run.toml:3)",
    ]


def test_an_override_of_a_parts_string_is_text_in_the_resolved_tree(package: Path) -> None:
    config = load_config("objective.uses=source_lab:Renamed", "objective.needed=12", "objective.gamma=12")
    assert config.tree["objective"] == {"uses": "source_lab:Renamed", "needed": "12", "gamma": 12}


def test_a_part_inside_a_part_is_checked_too(package: Path, write: Write) -> None:
    file = write("run.toml", '[hooks.a]\nuses = "source_lab:Unread"\nshape = { uses = "source_lab:Late", wehn = 1 }')
    with pytest.raises(ConfigError, match=r"hooks\.a\.shape\.wehn is no field of source_lab:Late; nearest: when"):
        check_parts_by_source(load_config(file))


def test_a_name_that_is_not_there_is_an_error_where_that_is_certain(package: Path, write: Write) -> None:
    file = write("run.toml", '[objective]\nuses = "source_lab.losses:Focl"\n[hooks.a]\nuses = "source_lab.nothing:X"')
    with pytest.raises(ConfigError) as caught:
        check_parts_by_source(load_config(file))
    assert f"{package}/source_lab/losses.py has no Focl; nearest: Focal (run.toml:2)" in str(caught.value)
    assert "there is no module source_lab.nothing (run.toml:4)" in str(caught.value)


def test_what_could_not_be_checked_is_said(package: Path, write: Write) -> None:
    file = write(
        "run.toml", '[objective]\nuses = "far_away:Loss"\nx = 1\n[hooks.a]\nuses = "source_lab.losses:made"\nx = 1'
    )
    assert check_parts_by_source(load_config(file)) == (
        f"objective: far_away is not installed, nor in {package}; the fields of far_away:Loss were not checked",
        "hooks.a: the fields of source_lab.losses:made can't be read from its source and were not checked",
    )


def test_a_module_that_does_not_parse_is_named_with_its_line(write: Write) -> None:
    write("torn_lab.py", "import attrs\nclass Focal(:\n")
    config = load_config(write("run.toml", '[objective]\nuses = "torn_lab:Focal"'))
    with pytest.raises(ConfigError, match=r"torn_lab\.py:2: invalid syntax"):
        check_parts_by_source(config)


def test_explain_knows_a_parts_own_default(package: Path, write: Write) -> None:
    config = load_config(write("run.toml", '[objective]\nuses = "source_lab:Renamed"'))
    assert config.explain("objective.gamma") == (
        f"objective.gamma is not set: default 2.0 of source_lab:Renamed ({package}/source_lab/losses.py:9; identity)"
    )
    with pytest.raises(ConfigError, match=r"batch\.examples_per_stp is not set; nearest: batch\.examples_per_step"):
        config.explain("batch.examples_per_stp")
