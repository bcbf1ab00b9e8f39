"""`ike-data check`: counts, lengths and duplicates as they are; what a run would refuse, it refuses."""

import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core.examples import Comparison, Example, Segment
from ike_data.cli import command
from ike_data.commands import duplicates
from ike_data.commands.duplicates import Duplicates, Group
from ike_data.commands.lengths import Bar, Lengths
from ike_data.store.block import Packer


@pytest.fixture
def checked(write, fix_tok, capsys) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Rows of prompt and response, checked as JSON; with the exit code."""

    def check(rows: list[Any], *settings: str) -> tuple[int, dict[str, Any]]:
        words = [write("rows.jsonl", rows), f"tokenizer.path={fix_tok.path}", *settings, "data.workers=1", "--json"]
        code = command(["check", "data.train.processor.uses=ike_data:InstructionProcessor", *words])
        (report,) = json.loads(capsys.readouterr().out)
        return code, report

    return check


def pair(prompt: str, response: str) -> dict[str, str]:
    return {"prompt": prompt, "response": response}


def test_everything_is_counted(checked) -> None:
    # FIX-TOK: a token a character, and the eos.
    rows = [pair("ab", "cd"), pair("ab", "cd"), pair("a", "bcdefghijk"), pair("a", ""), "no object", pair("ab", "cd")]
    code, report = checked(rows, "data.train.max_tokens=10", "data.ledger.budget=0.5")
    assert code == 0
    assert (report["rows"], report["rows_not_used"], report["examples"]) == (6, 3, 3)
    assert (report["tokens"], report["supervised"]) == (3 * 5, 3 * 3)  # the response and the eos
    assert report["tokens_not_used"] == 12
    assert report["repeats"] == 2
    assert report["repeated"] == [{"source": "rows.jsonl:1", "copies": 3}]
    assert report["lengths"]["histogram"] == [
        {"least": n, "most": n, "examples": {5: 3, 12: 1}.get(n, 0)} for n in range(5, 13)
    ]
    assert [report["lengths"][name] for name in ("shortest", "median", "longest", "mean")] == [5, 5, 12, 27 / 4]
    found = {finding["reason"]: finding for finding in report["findings"]}
    assert found["too long"]["first"][0]["source"] == "rows.jsonl:3"
    assert {reason: finding["count"] for reason, finding in found.items()} == {
        "too long": 1,
        "empty response": 1,
        "a row must be an object": 1,
    }


def test_what_is_cut_is_told_with_its_whole_length(checked) -> None:
    code, report = checked([pair("a", "bcdefghijk")], "data.train.max_tokens=10", "data.train.too_long=truncate_right")
    assert (code, report["examples"], report["tokens"], report["tokens_not_used"]) == (0, 1, 10, 2)
    assert report["lengths"]["longest"] == 12
    assert [finding["kind"] for finding in report["findings"]] == ["truncated"]


@pytest.mark.parametrize(("bad", "code"), [(1, 0), (2, 3)])
def test_past_the_budget_it_fails(checked, bad: int, code: int) -> None:
    rows = [pair("a", "b")] * (100 - bad) + [pair("a", "")] * bad
    assert checked(rows)[0] == code  # data.ledger.budget is 0.01 by default
    assert checked(rows)[1]["refusal"] == (
        ""
        if code == 0
        else "train data: 2 of 100 rows (2.0%) can't be used, and data.ledger.budget allows 1.0%: 2 empty response"
    )


def test_people_get_lines(write, fix_tok, capsys) -> None:
    rows = [pair("ab", "cd"), pair("ab", "cd"), pair("a", "")]
    uses = "data.train.processor.uses=ike_data:InstructionProcessor"
    code = command(["check", write("rows.jsonl", rows), uses, f"tokenizer.path={fix_tok.path}", "data.workers=1"])
    said = capsys.readouterr()
    assert code == 3
    assert said.out.splitlines() == [
        "train data: 3 rows as prompt_completion, 2 examples, 10 tokens, 6 supervised; 1 rows not used "
        "(1 empty response)",
        "max_tokens = 8192, too_long = skip",
        "tokens of an example: mean 5.0, shortest 5, median 5, 90% 5, 99% 5, longest 5",
        f"  5 to 5  {'█' * 40} 2",
        "duplicates: 1 examples have the tokens of an earlier one (50.0%)",
        "  rows.jsonl:1: 2 copies",
        "skipped: 1 empty response",
        "  rows.jsonl:3: empty response",
        "",
    ]
    assert said.err.startswith("ike-data: train data: 1 of 3 rows (33.3%) can't be used")


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60))
def test_bars_hold_every_example_once(sizes: list[int]) -> None:
    lengths = Lengths({size: sizes.count(size) for size in sizes})
    bars = lengths.bars()
    assert sum(bar.examples for bar in bars) == len(sizes)
    assert len(bars) <= 16
    for bar in bars:
        inside = [size for size in sizes if bar.least <= max(size, 1) <= bar.most]
        assert bar.examples == len(inside)
    for share in (0.5, 0.9, 1.0):
        at_most = [size for size in sizes if size <= lengths.quantile(share)]
        assert len(at_most) >= share * len(sizes)


def test_bars_end_at_powers_of_two() -> None:
    assert Lengths({100: 1, 128: 2, 129: 3, 2048: 1}).bars()[:2] == (Bar(1, 128, 3), Bar(129, 256, 3))


@given(st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=50), st.integers(1, 8))
def test_duplicates_are_those_with_equal_tokens(rows: list[list[int]], held: int) -> None:
    with pytest.MonkeyPatch.context() as patch, Duplicates() as found:
        patch.setattr(duplicates, "HELD", held)  # so that all goes through the files
        packer = Packer()
        for number, tokens in enumerate(rows):
            packer.add(Example.of(tokens, [1.0] * len(tokens)), number)
        found.add(packer.block(rows=len(rows), unusable=0, entries=(), shapes={}))
        repeats, groups = found.found()
    keys = [tuple(row) for row in rows]
    assert repeats == len(keys) - len(set(keys))
    expected = [Group(keys.count(key), keys.index(key)) for key in dict.fromkeys(keys) if keys.count(key) > 1]
    assert groups == sorted(expected, key=lambda group: (-group.copies, group.row))[:5]


def test_where_a_tree_branches_tells_it_from_another() -> None:
    one, two = Segment.prompt([1]), Segment.prompt([1, 2])
    trees = [Comparison(one, (two, one)), Comparison(two, (one, one)), Comparison(one, (two, one))]
    packer = Packer()
    for number, tree in enumerate(trees):
        packer.add(tree, number)
    with Duplicates() as found:
        found.add(packer.block(rows=3, unusable=0, entries=(), shapes={}))
        assert found.found() == (1, [Group(2, 0)])


def test_the_width_of_a_block_s_tokens_is_no_difference() -> None:
    with Duplicates() as found:
        for largest in (1, 70_000):  # 2 bytes a token, then 4
            packer = Packer()
            packer.add(Example.of(array("i", [1, 2]), [1.0, 1.0]), 0)
            packer.add(Example.of(array("i", [largest]), [1.0]), 1)
            found.add(packer.block(rows=2, unusable=0, entries=(), shapes={}))
        assert found.found()[0] == 1


def test_each_source_of_a_run_is_checked(write, fix_tok, tmp_path: Path, capsys) -> None:
    for name in ("one", "two", "other"):
        write(f"{name}.jsonl", [pair(name, "x")])
    (tmp_path / "run.toml").write_text(f"""
        tokenizer.path = "{fix_tok.path}"
        data.train.processor.uses = "ike_data:InstructionProcessor"
        data.train.mix_by = "tokens"
        data.train.sources.one = {{ files = ["one.jsonl"], weight = 1.0 }}
        data.train.sources.two = {{ files = ["two.jsonl"], weight = 3.0, max_tokens = 2 }}
        """)
    words = [str(tmp_path / "run.toml"), "data.workers=1", "--json"]
    assert command(["check", *words]) == 3  # nothing of two.jsonl fits
    told = json.loads(capsys.readouterr().out)
    assert [(report["data"], report["examples"]) for report in told] == [("train.one", 1), ("train.two", 0)]
    assert command(["check", str(tmp_path / "other.jsonl"), *words, "--data=train.one"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["data"], report["tokens"]) == ("train.one", len("otherx") + 1)


def test_real_chats_are_all_used(shared_data: Path, capsys) -> None:
    chats = shared_data / "fastchat/data__dummy_conversation.json"
    words = [str(chats), f"tokenizer.path={shared_data / 'tokenizers/qwen3'}", "data.workers=1", "--json"]
    assert command(["check", *words]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    rows = json.loads(chats.read_text())
    assert (report["rows"], report["examples"], report["rows_not_used"]) == (len(rows), len(rows), 0)
