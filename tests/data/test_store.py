"""A kept store: what it is called by, that it is whole, and that its processor would make it again."""

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest

from ike_core import DataError, Example
from ike_core.interfaces import Holdout
from ike_data.store.sample import is_sampled


@attrs.frozen
class Numbers:
    """A user's own class: the row's numbers, all but the first learned."""

    weight: float = 1.0
    table: Any = None

    def process(self, record: Any) -> Iterator[Example]:
        yield Example.of(record["n"], [0.0, *[self.weight] * (len(record["n"]) - 1)])


@pytest.fixture
def said() -> list[str]:
    """Lines for the console."""
    return []


@pytest.fixture
def file(write) -> str:
    return write("a.jsonl", [{"n": [place, 7]} for place in range(100)])


@pytest.fixture
def stores(tmp_path) -> Callable[[], list[Path]]:
    return lambda: sorted(path.parent for path in (tmp_path / "cache").glob("*/store.json"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damages() -> dict[str, Callable[[Path], Any]]:
    def flip(name: str) -> Callable[[Path], Any]:
        def flip(store: Path) -> None:
            content = bytearray((store / name).read_bytes())
            content[len(content) // 2] ^= 1
            (store / name).write_bytes(content)

        return flip

    return {
        **{f"a bit of {name}": flip(name) for name in ("tokens.u16", "run_weights", "sample.jsonl", "store.json")},
        "a column cut short": lambda store: os.truncate(store / "segments", 800),
        "a column is missing": lambda store: (store / "rows").unlink(),
        "no manifest": lambda store: (store / "store.json").unlink(),
    }


@pytest.mark.parametrize("damage", damages())
def test_a_damaged_store_is_found_and_made_anew(file, read, stores, said, damage) -> None:
    before = [list(example.trunk.tokens) for example in read(file, Numbers()).kept]
    (store,) = stores()
    whole = content(store)
    damages()[damage](store)
    parts = read(file, Numbers(), say=said.append)
    assert [list(example.trunk.tokens) for example in parts.kept] == before
    assert content(store) == whole
    (line,) = said
    assert line.startswith(f"train data: its store is damaged and made anew: {store}/")
    read(file, Numbers(), say=said.append)
    assert len(said) == 1


@attrs.frozen
class Chance:
    """No function of the row."""

    def process(self, record: Any) -> Iterator[Example]:
        yield Example.of([*record["n"], random.randrange(1000)], [0, 1, 1])


def test_a_processor_that_draws_lots_is_refused_with_the_row(file, read) -> None:
    with pytest.raises(DataError) as raised:
        read(file, Chance())
    expected = (
        r"train data: a\.jsonl:\d+: Chance gives something else than when the store was made: "
        r"tokens: number 2 is \d+ instead of \d+\. It must be a function of the row"
    )
    assert re.match(expected, str(raised.value))


FACTOR = 1


@attrs.frozen
class Outside:
    """Depends on what is no field and no code."""

    def process(self, record: Any) -> Iterator[Example]:
        yield Example.of(record["n"], [0, FACTOR])


def test_what_depends_on_something_outside_is_found_at_the_next_start(file, read, monkeypatch) -> None:
    read(file, Outside())
    monkeypatch.setitem(globals(), "FACTOR", 2)
    with pytest.raises(DataError, match=r"a\.jsonl:1: Outside .*: token weights: number 1 is 2\.0 instead of 1\.0"):
        read(file, Outside())


@pytest.mark.parametrize(
    ("options", "processor"),
    [
        ({"limit": 5}, Numbers()),
        ({"max_tokens": 3}, Numbers()),
        ({"max_tokens": 3, "too_long": "truncate_left"}, Numbers()),
        ({}, Numbers(weight=0.5)),
        ({}, Numbers(table={"a": [1, None], "b": {2}})),
        ({}, Numbers(table=Numbers())),
        ({}, Outside()),
    ],
)
def test_another_setting_is_another_store(file, read, stores, options, processor) -> None:
    read(file, Numbers())
    read(file, processor, **options)
    read(file, processor, **options)
    assert len(stores()) == 2


def test_what_decides_nothing_is_no_part_of_the_key(file, read, stores) -> None:
    read(file, Numbers())
    read(file, Numbers(), name="other", budget=0.5, holdout=Holdout(count=5, share=0.0, seed=1))
    assert len(stores()) == 1


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        (
            Numbers(table=iter(())),
            "Numbers.table is a tuple_iterator, whose fields are not known (it is no attrs class)",
        ),
        (type("Made", (Numbers,), {"__module__": "nowhere"})(), "the source of Made is not in a file (module nowhere)"),
    ],
)
def test_what_can_not_be_described_is_made_anew_in_the_run_folder_and_said(
    file, read, stores, said, tmp_path, processor, reason
) -> None:
    for _ in range(2):
        assert len(read(file, processor, say=said.append).kept) == 100
    assert stores() == []
    assert said == [f"train data: its store can't be kept for later runs: {reason}"] * 2
    assert (tmp_path / "run/data/train/host-00000/store/store.json").exists()


def test_a_tokenizer_is_known_by_its_content_not_by_its_path(saved, template, write, read, stores) -> None:
    from ike_data import ChatProcessor

    chats = write("b.jsonl", [{"messages": [{"role": role, "content": "hi"} for role in ("user", "assistant")]}])
    for chat in (template(), template(), template(marked=True)):
        read(chats, ChatProcessor(saved(chat=chat)))
    assert len(stores()) == 2


def test_a_changed_budget_is_held_against_a_kept_store(write, read, ledger) -> None:
    file = write("b.jsonl", b'{"n": [1, 2]}\n{\n')
    read(file, Numbers(), budget=0.5)
    with pytest.raises(DataError, match=r"1 of 2 rows \(50.0%\) can't be used, and data.ledger.budget allows 40.0%"):
        read(file, Numbers(), budget=0.4)
    assert [entry["source"] for entry in ledger()] == ["b.jsonl:2"]


@pytest.mark.parametrize("rows", [1, 19, 20, 21, 40, 41, 1000, 123_456])
def test_the_rows_of_a_sample_are_20_to_40_and_were_kept_whatever_came_later(rows) -> None:
    sampled = [row for row in range(rows) if is_sampled(row, rows)]
    assert min(rows, 20) <= len(sampled) <= 40
    gaps = {later - earlier for earlier, later in pairwise(sampled)}
    assert len(gaps) <= 1
    assert all(is_sampled(row, row + 1) for row in sampled)


def test_a_million_rows_cost_a_few_hundred_sampled_ones() -> None:
    assert sum(is_sampled(row, row + 1) for row in range(1_000_000)) < 400


def test_a_store_says_what_its_key_is_made_of(file, read, stores) -> None:
    read(file, Numbers(), limit=50)
    (store,) = stores()
    description = json.loads((store / "store.json").read_bytes())["store"]["description"]
    assert description["limit"] == 50
    assert description["files"][0][0] == "a.jsonl"
    assert description["processor"]["class"].endswith(":Numbers")
