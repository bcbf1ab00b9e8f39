"""What the README and the guides show is what is in the repository, and works."""

import re
import tomllib
from pathlib import Path

import pytest

from ike_core import ConfigError
from ike_core.config import check_parts_by_source, load_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted(ROOT.glob("packages/*/README.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    return [block for name, block in fenced if name == language]


def test_a_shown_example_is_the_file_itself() -> None:
    shown = {}
    for page in PAGES:
        for block in blocks(page, "python"):
            name, _, code = block.partition("\n")
            if name.startswith("# examples/"):
                shown[name.removeprefix("# ")] = code
    assert {"examples/train.py", "examples/my_lab/focal.py", "examples/alternating.py"} <= shown.keys()
    for name, code in shown.items():
        assert code == (ROOT / name).read_text(), f"{name} differs from what the pages show"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_toml_and_python_on_a_page_parse(page: Path) -> None:
    for block in blocks(page, "toml"):
        tomllib.loads(block)
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def test_the_readmes_settings_resolve(tmp_path: Path) -> None:
    mine = next(block for block in blocks(ROOT / "README.md", "toml") if block.startswith("# mine.toml"))
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "mine.toml").write_text(mine)
    config = load_config(tmp_path / "mine.toml", "optimizer.peak_lr=2e-5")
    assert config.run.name == "mine-lr2e-05"
    assert config.batch.examples_per_step == 64


def test_the_settings_of_several_sources_resolve(tmp_path: Path) -> None:
    (settings,) = blocks(ROOT / "docs" / "mixing.md", "toml")
    (tmp_path / "mixed.toml").write_text(settings)
    train = load_config(tmp_path / "mixed.toml", "data.train.sources.math.weight=3").data.train
    assert train is not None
    assert {name: source.weight for name, source in train.sources.items()} == {"chat": 2.0, "math": 3.0}
    assert train.sources["chat"].processor is not None


def test_the_readmes_errors_are_what_one_gets(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    shown = next(block for block in blocks(page, "") if "is no known key" in block).splitlines()
    tables = blocks(page, "toml")
    mine, focal = next(b for b in tables if "# mine.toml" in b), next(b for b in tables if "my_lab.focal" in b)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "my_lab").symlink_to(ROOT / "examples" / "my_lab")
    (tmp_path / "mine.toml").write_text(mine.replace("examples_per_step", "example_per_step"))
    (tmp_path / "right.toml").write_text(mine)
    (tmp_path / "focal.toml").write_text(focal.replace("gamma", "gama"))
    right = tmp_path / "right.toml"
    assert refusal(tmp_path / "mine.toml").replace(f"{tmp_path}/", "") == shown[0]
    assert refusal(right, 'optimizer.peak_lr="2e-5"') == shown[1]
    assert refusal(right, tmp_path / "focal.toml").replace(f"{tmp_path}/", "") == shown[2]


def refusal(*layers: Path | str) -> str:
    with pytest.raises(ConfigError) as refused:
        check_parts_by_source(load_config(*layers))
    return str(refused.value)


@pytest.mark.parametrize("name", ["focal", "squared"])
def test_an_objective_of_ones_own_takes_fifteen_lines(name: str) -> None:
    code = (ROOT / "examples" / "my_lab" / f"{name}.py").read_text().splitlines()
    assert len([line for line in code if line.strip()]) <= 15


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda recipe: recipe.stem)
def test_every_recipe_is_whole_but_for_what_the_user_says(recipe: Path) -> None:
    said = {
        "sft": ['data.train.files=["chat.jsonl"]'],
        "dpo": ['data.train.files=["pairs.jsonl"]'],
        "kto": ['data.train.files=["feedback.jsonl"]'],
        "quickstart": ["model.path=hub/name"],
    }
    said["generate"] = ["model.path=hub/name", 'inference.files=["asked.jsonl"]', "inference.output=answers.jsonl"]
    load_config(recipe, *said.get(recipe.stem, []))
