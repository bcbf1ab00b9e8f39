"""Folders and names of the hub stand for the files in them."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

from ike_core import DataError
from ike_data.rows import read_rows
from ike_data.sources.paths import find_files


def names(*patterns: str) -> list[str]:
    return [file.name for file in find_files(patterns)]


def test_a_folder_is_all_its_files_in_the_order_of_their_paths(write, tmp_path) -> None:
    for name in ("d/b.jsonl", "d/a/z.jsonl.gz", "d/a/y.ndjson", "d/c/1.JSONL"):
        write(name, [{"name": name}])
    for name in ("d/.hidden.jsonl", "d/_SUCCESS", "d/.git/a.jsonl", "d/LICENSE", "d/README.md"):
        write(name, b"no data")
    assert names(str(tmp_path / "d")) == ["y.ndjson", "z.jsonl.gz", "b.jsonl", "1.JSONL"]


def test_a_folder_of_documents_is_a_row_a_file(write, tmp_path) -> None:
    for number in range(3):
        write(f"docs/{number}.txt", f"document {number}\n".encode())
    read = list(read_rows([str(tmp_path / "docs")]))
    assert read == [(f"{number}.txt:1", {"text": f"document {number}\n"}) for number in range(3)]


def test_a_folder_of_several_formats_is_not_guessed_about(write, tmp_path) -> None:
    write("d/a.jsonl", [{}])
    write("d/b.jsonl.gz", [{}])
    write("d/README.txt", b"about these rows")
    with pytest.raises(DataError) as raised:
        names(str(tmp_path / "d"))
    says = f"{tmp_path / 'd'} has files of several formats (2 .jsonl, 1 .txt); say which are meant, such as "
    assert str(raised.value) == f"{says}{tmp_path / 'd' / '*.jsonl'}"


def test_a_folder_without_data_says_what_would_be_some(write, tmp_path) -> None:
    write("d/a.xlsx", b"")
    with pytest.raises(DataError, match=r"d has no files that ike reads \(\.jsonl, "):
        names(str(tmp_path / "d"))


def test_links_to_folders_are_followed_once(write, tmp_path) -> None:
    write("elsewhere/a.jsonl", [{}])
    (tmp_path / "d").mkdir()
    (tmp_path / "d/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "d")
    assert names(str(tmp_path / "d")) == ["a.jsonl"]


def test_a_glob_of_folders_is_what_is_in_them_and_of_files_only_these(write, tmp_path) -> None:
    write("x/part-1/a.jsonl", [{}])
    write("x/part-2/b.jsonl", [{}])
    assert names(str(tmp_path / "x/*")) == ["a.jsonl", "b.jsonl"]
    write("x/c.jsonl", [{}])
    assert names(str(tmp_path / "x/*")) == ["c.jsonl"]


class Datasets(ModuleType):
    """What ike uses of the library, as datasets 4 answers: a mapping of splits, each with the files that hold it."""

    def __init__(self, splits: dict[str, list[str]] | Exception) -> None:
        super().__init__("datasets")
        self.splits, self.asked = splits, []

    def load_dataset(self, path: str, name: str | None) -> dict[str, SimpleNamespace]:
        self.asked.append((path, name))
        if isinstance(self.splits, Exception):
            raise self.splits
        return {
            split: SimpleNamespace(cache_files=[{"filename": file} for file in files])
            for split, files in self.splits.items()
        }


@pytest.fixture
def library(monkeypatch) -> Callable[[dict[str, list[str]] | Exception], Datasets]:
    def library(splits: dict[str, list[str]] | Exception) -> Datasets:
        module = Datasets(splits)
        monkeypatch.setitem(sys.modules, "datasets", module)
        return module

    return library


@pytest.fixture
def shards(tmp_path) -> list[str]:
    """Two files as the library keeps a split."""
    for number in range(2):
        table = pa.table({"n": [2 * number, 2 * number + 1]})
        with ipc.new_stream(tmp_path / f"gsm8k-train-0000{number}-of-00002.arrow", table.schema) as writer:
            writer.write_table(table)
    return [str(tmp_path / f"gsm8k-train-0000{number}-of-00002.arrow") for number in range(2)]


def test_a_name_of_the_hub_is_the_files_of_its_split(library, shards) -> None:
    module = library({"train": shards, "test": []})
    read = list(read_rows(["hf://openai/gsm8k/main:train"]))
    assert module.asked == [("openai/gsm8k", "main")]
    assert [row["n"] for _, row in read] == [0, 1, 2, 3]
    assert [source for source, _ in read][::2] == [f"gsm8k-train-0000{number}-of-00002.arrow:1" for number in range(2)]


def test_an_only_split_need_not_be_said_and_one_of_several_must(library, shards) -> None:
    assert library({"train": shards}).splits
    assert len(list(read_rows(["hf://openai/gsm8k"]))) == 4
    library({"train": shards, "test": []})
    for name, what in (("hf://a/b", "has several splits"), ("hf://a/b:valid", "has no split 'valid'")):
        with pytest.raises(DataError) as raised:
            names(name)
        assert str(raised.value) == f"{name} {what}; say one of train, test: hf://owner/name[/config][:split]"


@pytest.mark.parametrize("name", ["hf://gsm8k", "hf://a/b/c/d", "hf://a/b:train[:10%]", "hf://"])
def test_what_is_no_name_of_the_hub_is_refused_by_its_form(name) -> None:
    with pytest.raises(DataError, match=r"is no hf://owner/name\[/config\]\[:split\]"):
        names(name)


def test_without_the_library_its_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r'hf://a/b needs the datasets library: pip install "ike-data\[hub\]"'):
        names("hf://a/b")


def test_what_the_library_says_is_said_on_one_line(library) -> None:
    library(ConnectionError("Couldn't reach 'a/b' on the Hub\n(offline mode is enabled)"))
    with pytest.raises(DataError) as raised:
        names("hf://a/b")
    said = "ConnectionError: Couldn't reach 'a/b' on the Hub (offline mode is enabled)"
    assert str(raised.value) == f"hf://a/b can't be loaded (once fetched, it needs no network): {said}"
