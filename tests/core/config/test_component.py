"""Building a part: its module is imported, its table becomes its fields, and nothing is guessed."""

import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from ike_core.config import Component, load_config
from ike_core.errors import ConfigError

Write = Callable[..., Path]

LAB = """
from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NewType, Protocol

import attrs

from ike_core.interfaces import Tokenizer

if TYPE_CHECKING:
    from fractions import Fraction


Metres = NewType("Metres", float)


class Shape(Protocol):
    def __call__(self, step: int) -> float: ...


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Inner:
    width: int
    deep: Path = Path("x")


@attrs.frozen
class Constant:
    height: float = 1.0
    tokenizer: Tokenizer | None = None

    def __call__(self, step: int) -> float:
        return self.height


@attrs.frozen
class Everything:
    tokenizer: Tokenizer
    count: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    rate: float = attrs.field(default=0.5, validator=attrs.validators.lt(1.0))
    label: str = ""
    mode: Literal["fast", "slow"] = "fast"
    level: Literal[1, 2] = 1
    colour: Colour = Colour.RED
    betas: tuple[float, float] = (0.9, 0.95)
    names: list[str] = attrs.field(factory=list)
    sizes: Mapping[str, int] = attrs.field(factory=dict)
    limit: int | Literal["auto"] | None = None
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    shape: Shape | None = None
    shapes: Mapping[str, Shape] = attrs.field(factory=dict)
    anything: Any = None
    raw: dict[str, Any] = attrs.field(factory=dict)
    _hidden: int = 0
    made: str = attrs.field(init=False, default="here")
    hook: Callable[[int], int] | None = None
    odd: Fraction | None = None
    kind: type[int] | None = None
    alias: Metres | None = None
    day: datetime.date | None = None
    paths: Mapping[str, Path] = attrs.field(factory=dict)


@attrs.frozen
class Both:
    low: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    high: int = attrs.field(default=1, validator=attrs.validators.ge(0))

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}")


class Plain:
    pass


class Needy:
    def __init__(self, size: int) -> None:
        self.size = size


def function(model: Any, samples: Any) -> Any:
    return model(**samples).loss


NUMBER = 3
"""


class Words:
    """A tokenizer to recognise."""


@pytest.fixture
def lab(write: Write) -> Callable[..., Any]:
    """lab('rate = 0.1', name="Everything") builds what run.toml's [objective] says."""
    write("component_lab.py", LAB)

    def build(table: str, *overrides: str, name: str = "Everything", tokenizer: Any = Words, **defaults: Any) -> Any:
        file = write("run.toml", f'[objective]\nuses = "component_lab:{name}"\n{table}')
        objective = load_config(file, *overrides).objective
        assert objective is not None
        return objective.build(tokenizer=tokenizer() if isinstance(tokenizer, type) else tokenizer, **defaults)

    return build


def refusal(build: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        build(*arguments, **options)
    return str(caught.value)


def test_a_table_becomes_the_fields_of_its_class(lab: Callable[..., Any]) -> None:
    part = lab(
        """
count = 3
rate = 0
mode = "slow"
colour = "blue"
betas = [0.8, 1]
names = ["a", "b"]
sizes = { small = 1 }
limit = "auto"
inner = { width = 2 }
inners = [{ width = 3 }, { width = 4 }]
anything = { free = [1] }
raw = { uses = "is not read here" }
hidden = 5
alias = 2
day = 2026-01-31
paths = { words = "w.txt" }
"""
    )
    assert (part.alias, part.day) == (2.0, datetime.date(2026, 1, 31))
    assert part.paths == {"words": Path.cwd() / "w.txt"}
    assert (part.count, part.rate, type(part.rate), part.mode, part.colour.value) == (3, 0.0, float, "slow", "blue")
    assert (part.betas, part.names, part.sizes, part.limit) == ((0.8, 1.0), ["a", "b"], {"small": 1}, "auto")
    assert (part.inner.width, [inner.width for inner in part.inners]) == (2, [3, 4])
    assert (part.anything, part.raw, part._hidden, part.made) == (
        {"free": [1]},
        {"uses": "is not read here"},
        5,
        "here",
    )


def test_parts_inside_a_part_are_built_too(lab: Callable[..., Any]) -> None:
    part = lab(
        """
shape = { uses = "component_lab:Constant", height = 2 }
anything = { uses = "component_lab:Constant", height = 3 }
shapes = { a = { uses = "component_lab:Constant" } }
hook = { uses = "component_lab:function" }
"""
    )
    assert (part.shape(0), part.anything(0), part.shapes["a"](0)) == (2.0, 3.0, 1.0)
    assert isinstance(part.shape.tokenizer, Words)  # the run's reaches them as well
    assert part.hook.__name__ == "function"


def test_a_tokenizer_that_the_table_leaves_out_is_the_runs(lab: Callable[..., Any]) -> None:
    words = Words()
    assert lab("", tokenizer=words).tokenizer is words
    said = refusal(lab, "", tokenizer=None)
    assert said == "objective.tokenizer is missing: component_lab:Everything needs a tokenizer (run.toml:1)"


def test_defaults_fill_what_the_class_has_and_the_table_leaves_out(lab: Callable[..., Any]) -> None:
    part = lab("count = 2", rate=0.25, label="given", unheard_of=1, count=9)
    assert (part.count, part.rate, part.label) == (2, 0.25, "given")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("cuont = 1", "objective.cuont is no field of component_lab:Everything; nearest: count"),
        ("count = 0", "objective.count = 0 must be >= 1"),
        ("rate = 1.5", "objective.rate = 1.5 must be < 1.0"),
        ('rate = "0.5"', "objective.rate = '0.5' must be a number; without quotes: 0.5"),
        ("count = true", "objective.count = true must be an integer"),
        ("label = 3", "objective.label = 3 must be a string"),
        ('mode = "slwo"', "must be \"fast\" or \"slow\"; nearest: slow"),
        ('colour = "green"', 'objective.colour = \'green\' must be "red" or "blue"'),
        ("level = true", "objective.level = true must be 1 or 2"),
        ("level = 1.0", "objective.level = 1.0 must be 1 or 2"),
        ("betas = [0.9, 1, 2]", "objective.betas = [0.9, 1, 2] must have 2 items, has 3"),
        ("betas = [0.9]", "objective.betas = [0.9] must have 2 items, has 1"),
        ('betas = [0.9, "b"]', "objective.betas[1] = 'b' must be a number"),
        ('names = "a"', 'objective.names = \'a\' must be an array, each a string; in brackets: ["a"]'),
        ("sizes = { small = 1.5 }", "objective.sizes.small = 1.5 must be an integer"),
        ('limit = "many"', 'objective.limit = \'many\' must be an integer or "auto"'),
        ("inner = { widht = 1 }", "objective.inner.widht is no field of component_lab:Inner; nearest: width"),
        ("inners = [{ width = 1 }, { width = 'x' }]", "objective.inners[1].width = 'x' must be an integer"),
        ("shape = 3", "objective.shape = 3 must be a table with `uses`"),
        ('shape = { uses = "component_lab:Constant", hieght = 2 }', "objective.shape.hieght is no field"),
        ('shape = { uses = "component_lab" }', "objective.shape.uses = 'component_lab' must read \"module:Name\""),
        ("made = 'x'", "objective.made is no field"),
        ("kind = 1", "objective.kind = 1: it is annotated type[int], which no table can say"),
        ("alias = 'far'", "objective.alias = 'far' must be a number"),
        ("day = 'today'", "objective.day = 'today' must be a date"),
        ("odd = 1", "objective.odd can't be checked: component_lab annotates it Fraction | None"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_file_and_line(lab: Callable[..., Any], table: str, said: str) -> None:
    message = refusal(lab, table)
    assert said in message
    assert message.endswith("(run.toml:3)")


def test_all_that_is_wrong_with_a_part_is_said_at_once(lab: Callable[..., Any]) -> None:
    said = refusal(lab, "count = 0\nrate = 2\nmode = 1\nnmaes = []\nshape = { uses = 'component_lab:Nope' }")
    assert said.startswith("5 settings can't be used:")
    assert [f"(run.toml:{line})" in said for line in range(3, 8)] == [True] * 5


def test_what_the_class_itself_refuses_is_said_with_its_words(lab: Callable[..., Any]) -> None:
    said = refusal(lab, "low = 3\nhigh = 2", name="Both")
    assert said == "objective: component_lab:Both refuses it: low = 3 is above high = 2 (run.toml:1)"


def test_an_override_of_a_parts_string_is_its_text(lab: Callable[..., Any]) -> None:
    assert lab("", "objective.label=12").label == "12"
    assert lab("", "objective.count=7").count == 7


def test_a_callable_is_a_part_without_fields(lab: Callable[..., Any]) -> None:
    assert lab("", name="function").__name__ == "function"
    assert type(lab("", name="Plain")).__name__ == "Plain"
    assert "objective.beta can't be given: component_lab:function is a function" in refusal(
        lab, "beta = 1", name="function"
    )
    assert "objective.beta can't be given: component_lab:Plain is a class without attrs" in refusal(
        lab, "beta = 1", name="Plain"
    )
    assert "can't be made without arguments" in refusal(lab, "", name="Needy")
    assert "is a int, not a class or a function" in refusal(lab, "", name="NUMBER")


def test_a_module_that_is_not_there_names_the_folders_looked_in(write: Write) -> None:
    write("cfg/losses_lab.py", "class Focal: ...")
    objective = load_config(write("cfg/run.toml", '[objective]\nuses = "loses_lab:Focal"')).objective
    assert objective is not None
    said = refusal(objective.build)
    folder = Path.cwd() / "cfg"
    assert said == (
        f'objective.uses = "loses_lab:Focal": there is no module loses_lab: '
        f"looked among the installed packages and in {folder}; nearest: losses_lab (cfg/run.toml:2)"
    )


def test_a_name_that_is_not_there_names_the_file_and_the_nearest(lab: Callable[..., Any]) -> None:
    said = refusal(lab, "", name="Evrything")
    assert said.startswith('objective.uses = "component_lab:Evrything": component_lab (')
    assert said.endswith("component_lab.py) has no Evrything; nearest: Everything (run.toml:2)")


def test_an_optional_package_that_is_missing_says_what_to_install(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ike_data", None)
    write("needs_lab.py", "import ike_data\nclass A: ...")
    write("breaks_lab.py", "1 / 0")
    said = refusal(Component("objective", "needs_lab:A", import_from=(Path.cwd(),)).build)
    assert said == (
        'objective.uses = "needs_lab:A": needs_lab imports ike_data, which is not installed: pip install "ike-data"'
    )
    said = refusal(Component("data.train.processor", "ike_data:ChatProcessor").build)
    assert said.endswith('ike_data is not installed: pip install "ike-data"')
    said = refusal(Component("objective", "breaks_lab:A", import_from=(Path.cwd(),)).build)
    assert "importing breaks_lab failed: ZeroDivisionError: division by zero" in said


def test_installed_packages_come_before_a_file_of_the_same_name(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("colorsys.py", "class Focal: ...")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    said = refusal(Component("objective", "colorsys:Focal", import_from=(Path.cwd(),)).build)
    assert "colorsys (/" in said
    assert str(Path.cwd()) not in said


def test_no_part_may_have_a_field_that_core_takes_from_its_table(write: Write) -> None:
    write("reserved_lab.py", "import attrs\n@attrs.frozen\nclass Net:\n    attention: str = ''\n    lora: int = 0\n")
    model = load_config(write("run.toml", '[model]\nuses = "reserved_lab:Net"')).model
    assert model is not None
    said = refusal(model.part.build)
    assert "its field attention is one of ike's own keys here; give it another name" in said
    assert "its field lora is one of ike's own keys here" in said


def test_a_class_that_python_gives_is_built_from_the_table(write: Write) -> None:
    @attrs.frozen
    class Chat:
        system: str = ""

    component = Component("data.train.processor", "nowhere:Chat", {"system": "be brief"})
    assert component.build(found=Chat) == Chat("be brief")


def test_nothing_is_imported_before_a_part_is_built(write: Write) -> None:
    write("loud_lab.py", "raise SystemExit('imported')\nclass Focal: ...")
    config = load_config(write("run.toml", '[objective]\nuses = "loud_lab:Focal"'))
    config.explain("objective")
    config.to_toml()
