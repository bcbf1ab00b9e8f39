"""Rule 6: paths are relative to the file that says them, overrides' to the current folder."""

import glob
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ike_core.config import load_config
from ike_core.errors import ConfigError

Write = Callable[..., Path]


@pytest.mark.parametrize("folder", ["/", ".", "cfg"])
def test_the_current_folder_does_not_matter_to_a_file(
    write: Write, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """B33: /x/cfg/run.toml with ../d/a.jsonl, called from /, from /x and from /x/cfg."""
    file = write("cfg/run.toml", '[run]\nroot = "../out"\n[data.train]\nfiles = ["../d/a.jsonl", "/abs/*.jsonl"]')
    x = file.parents[1]
    monkeypatch.chdir(x / folder)
    config = load_config(os.path.relpath(file))
    assert config.data.train is not None
    assert config.data.train.files == (str(x / "d/a.jsonl"), "/abs/*.jsonl")
    assert config.run.root == x / "out"
    assert config.tree["data"]["train"]["files"] == [str(x / "d/a.jsonl"), "/abs/*.jsonl"]
    assert config.tree["run"]["root"] == str(x / "out")


def test_overrides_and_defaults_are_relative_to_the_current_folder(write: Write) -> None:
    file = write("cfg/run.toml", "[run]\nseed = 1")
    here = Path.cwd()
    config = load_config(file, "data.train.files=['d/a.jsonl']")
    assert config.data.train is not None
    assert config.data.train.files == (str(here / "d/a.jsonl"),)
    assert config.run.root == here / "runs"


def test_an_extended_file_has_its_own_folder(write: Write) -> None:
    write("shared/base.toml", '[data.train]\nfiles = ["a.jsonl"]')
    top = write("mine/top.toml", 'extends = ["../shared/base.toml"]')
    train = load_config(top).data.train
    assert train is not None
    assert train.files == (str(Path.cwd() / "shared/a.jsonl"),)


def test_a_folders_own_brackets_are_no_pattern(write: Write) -> None:
    data = write("[odd]/a1.jsonl", "{}")
    file = write("[odd]/run.toml", '[data.train]\nfiles = ["a*.jsonl"]')
    train = load_config(file).data.train
    assert train is not None
    assert glob.glob(train.files[0]) == [str(data)]


def test_a_dataset_of_the_hub_is_no_path(write: Write) -> None:
    file = write("cfg/run.toml", '[data.train]\nfiles = ["hf://owner/name/config:train", "a.jsonl"]')
    train = load_config(file).data.train
    assert train is not None
    assert train.files == ("hf://owner/name/config:train", str(file.parent / "a.jsonl"))


def test_a_missing_layer_is_named_by_its_absolute_path(write: Write) -> None:
    """B33"""
    write("models/smollm2.toml", "")
    with pytest.raises(ConfigError) as caught:
        load_config("models/smolm2.toml")
    assert str(caught.value) == f"there is no file {Path.cwd()}/models/smolm2.toml; nearest: smollm2.toml"
    with pytest.raises(ConfigError, match=f"there is no file {Path.cwd()}/nowhere/x.toml, nor its folder"):
        load_config("nowhere/x.toml")


def test_a_missing_base_is_named_by_its_absolute_path(write: Write) -> None:
    file = write("cfg/run.toml", 'extends = ["../base.toml"]')
    with pytest.raises(ConfigError, match=f"there is no file {Path.cwd()}/base.toml"):
        load_config(file)


def test_a_models_path_is_a_folder_beside_the_file_where_there_is_one(write: Write) -> None:
    write("cfg/models/mine/config.json", "{}")
    teacher = '[frozen.teacher]\nuses = "ike_core.runtime:PretrainedModel"\npath = "models/mine"'
    file = write("cfg/run.toml", f'[model]\npath = "models/mine"\n{teacher}')
    config = load_config(file)
    folder = str(Path.cwd() / "cfg/models/mine")
    assert config.model is not None
    assert config.model.part.table == {"path": folder}
    assert config.frozen["teacher"].part.table == {"path": folder}


@pytest.mark.parametrize("name", ["gpt2", "HuggingFaceTB/SmolLM2-135M"])
def test_a_models_path_is_else_a_name_on_the_hub(write: Write, name: str) -> None:
    model = load_config(write("run.toml", f'[model]\npath = "{name}"')).model
    assert model is not None
    assert model.part.table == {"path": name}


@pytest.mark.parametrize("path", ["models/nested/mine", "./mine", "../mine", "/nowhere/mine", "mine.gguf"])
def test_a_models_path_that_is_neither_names_both_things_tried(write: Write, path: str) -> None:
    file = write("cfg/run.toml", f'[model]\npath = "{path}"')
    tried = os.path.normpath(Path.cwd() / "cfg" / path)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).startswith(
        f'model.path = "{path}": {tried} does not exist, and this is no name on the hub'
    )
    assert str(caught.value).endswith("(cfg/run.toml:2)")


def test_a_gguf_file_is_a_model(write: Write) -> None:
    gguf = write("small.gguf", "")
    model = load_config(write("run.toml", '[model]\npath = "small.gguf"')).model
    assert model is not None
    assert model.part.table == {"path": str(gguf)}


def test_what_path_means_to_a_part_of_the_users_is_its_own_matter(write: Write) -> None:
    model = load_config(write("run.toml", '[model]\nuses = "lab:Net"\npath = "s3://bucket/a/b"')).model
    assert model is not None
    assert model.part.table == {"path": "s3://bucket/a/b"}


def test_a_parts_path_is_absolute_in_the_resolved_tree_too(write: Write) -> None:
    write("cfg/paths_lab.py", "from pathlib import Path\nimport attrs\n@attrs.frozen\nclass Part:\n"
          "    words: Path\n    lists: tuple[Path, ...] = ()\n    text: str = ''\n")  # fmt: skip
    file = write(
        "cfg/run.toml", '[objective]\nuses = "paths_lab:Part"\nwords = "w.txt"\nlists = ["a", "../b"]\ntext = "t"'
    )
    here = Path.cwd()
    config = load_config(file)
    resolved = {"words": str(here / "cfg/w.txt"), "lists": [str(here / "cfg/a"), str(here / "b")], "text": "t"}
    assert config.objective is not None
    assert config.objective.table == resolved
    part = config.objective.build()
    assert (part.words, part.lists) == (here / "cfg/w.txt", (here / "cfg/a", here / "b"))
