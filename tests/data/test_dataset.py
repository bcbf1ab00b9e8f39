"""Files to a dataset: random access, every row accounted for, one rank of a host builds and the others map."""

import errno
import json
import os
from array import array
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from ike_core import Comparison, DataError, Example, LabelledExample, Segment, Skip, preference_pair, weigh
from ike_core.interfaces import Holdout


@attrs.frozen
class Numbers:
    """A user's own class: the row's numbers, all but the first learned."""

    def process(self, record: Any) -> Iterator[Example]:
        yield Example.of(record["n"], [0.0, *[1.0] * (len(record["n"]) - 1)])


@attrs.frozen
class Yields:
    """Yields the same things for every row."""

    items: Any

    def process(self, record: Any) -> Any:
        return self.items


def numbers(count: int) -> list[dict[str, Any]]:
    """Rows of two tokens each, the first its place."""
    return [{"n": [place, 7]} for place in range(count)]


def first_tokens(dataset) -> list[int]:
    return [example.trunk.tokens[0] for example in dataset]


EVERYTHING = (
    Example(
        (Segment.prompt([1, 2]), Segment.answer([3], weight=0.25)), weight=2.0, fields={"id": "é", "tags": [1, None]}
    ),
    Comparison(
        Segment.prompt([1]),
        (Segment.answer([2, 3], score=0.5), Segment.answer([4], score=-1.0), Segment.answer([5])),
        margin=0.5,
        source="of its own",
    ),
    preference_pair([9], [1, 2], [1, 3]),
    LabelledExample(prompt=Segment.prompt([1]), answer=Segment.answer([2]), desirable=True),
    LabelledExample(prompt=Segment.prompt([]), answer=Segment.answer([2, 3]), desirable=False),
    Example((Segment([1, 2, 3], [0.0, 0.1, 0.7]),), weight=0.1),  # numbers that float32 does not have
    Example.of(range(100_000, 170_000), [0.0] + [0.1] * 69_999),
)


def test_every_kind_comes_back_as_it_was_with_its_index_and_source(write, read) -> None:
    kept = read(write("a.jsonl", [{}]), Yields(EVERYTHING)).kept
    assert len(kept) == len(EVERYTHING)
    for index, (stored, given) in enumerate(zip(kept, EVERYTHING, strict=True)):
        assert stored.index == index
        assert stored.source == (given.source or "a.jsonl:1")
        expected = attrs.evolve(given, index=index, source=stored.source)
        assert attrs.asdict(stored, value_serializer=plain) == attrs.asdict(expected, value_serializer=plain)
        assert type(stored) is type(given)
        assert kept.size(index) == len(given) == len(stored)
        assert kept.weights(index) == weigh([stored])


def plain(_instance: Any, field: Any, value: Any) -> Any:
    """Tokens and weights as the numbers that they are."""
    if field is not None and field.name in ("tokens", "weights"):
        return list(array("f" if field.name == "weights" else "i", value))
    return value


def test_a_dataset_is_read_from_any_end(write, read) -> None:
    kept = read(write("a.jsonl", numbers(3)), Numbers()).kept
    assert (kept[-1].index, kept[-1].trunk.tokens[0]) == (2, 2)
    with pytest.raises(IndexError):
        kept[3]


def test_tokens_are_views_into_the_file(write, read) -> None:
    example = read(write("a.jsonl", numbers(1)), Numbers()).kept[0]
    assert isinstance(example.trunk.tokens, memoryview)
    assert (example.trunk.tokens.itemsize, example.trunk.tokens.readonly) == (2, True)


def test_a_user_s_class_is_given_each_row_and_its_skips_are_kept(write, read, ledger) -> None:
    class Odd:
        def process(self, record: Any) -> Iterator[Any]:
            if record["n"][0] % 2:
                yield Skip("even number: not wanted")
            else:
                yield from Numbers().process(record)

    parts = read(write("a.jsonl", numbers(5)), Odd())
    assert first_tokens(parts.kept) == [0, 2, 4]
    assert [example.source for example in parts.kept] == ["a.jsonl:1", "a.jsonl:3", "a.jsonl:5"]
    assert ledger() == [
        {"data": "train", "source": source, "reason": "even number: not wanted", "kind": "skipped", "tokens": 0}
        for source in ("a.jsonl:2", "a.jsonl:4")
    ]
    assert parts.summary == ("train data: 5 rows, 3 examples, 6 tokens, 3 supervised; 2 rows not used (2 even number)")


@pytest.mark.parametrize(
    ("items", "error"),
    [
        (None, "a.jsonl:1: Yields.process returned None; it must yield Example, Comparison, LabelledExample or Skip"),
        ([None], "a.jsonl:1: Yields.process yielded None; it must yield Example"),
        ([{"tokens": [1]}], "a.jsonl:1: Yields.process yielded a dict; it must yield Example"),
        (5, "a.jsonl:1: Yields.process returned a int; it must yield Example"),
        (
            [Example.of([1, 2], [0, 1], fields={"at": {1, 2}})],
            "a.jsonl:1: Yields yielded what can't be stored: Type is not JSON serializable: set",
        ),
        ([Example((Segment([1, 2**31], [0, 1]),))], "a.jsonl:1: Yields yielded what can't be stored: "),
        ([Example.of([1, -2], [0, 1])], "a.jsonl:1: Yields yielded what can't be stored: token -2; ids start at 0"),
    ],
)
def test_what_is_no_example_is_refused_with_class_and_row(write, read, items, error) -> None:
    with pytest.raises(DataError) as raised:
        read(write("a.jsonl", numbers(2)), Yields(items))
    assert str(raised.value).startswith(error)


def test_a_processor_that_raises_is_named_with_the_row(write, read) -> None:
    with pytest.raises(DataError) as raised:
        read(write("a.jsonl", [{"n": [1, 2]}, {"m": 1, "k": 2}]), Numbers())
    assert str(raised.value) == "a.jsonl:2: Numbers.process raised KeyError: 'n' (the row's columns: m, k)"


def test_a_row_that_gives_nothing_is_in_the_ledger(write, read, ledger) -> None:
    with pytest.raises(DataError, match="none of 1 rows can be used: 1 the processor yielded nothing"):
        read(write("a.jsonl", [{}]), Yields([]))
    assert [entry["reason"] for entry in ledger()] == ["the processor yielded nothing"]


ROWS = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10], [11]]


@pytest.mark.parametrize(
    ("too_long", "kept", "truncated"), [("truncate_right", 9, 1), ("skip", 5, 0)], ids=["truncate", "drop"]
)
def test_every_token_is_kept_or_accounted_for(write, read, ledger, too_long, kept, truncated) -> None:
    parts = read(write("a.jsonl", [{"n": row} for row in ROWS]), Numbers(), max_tokens=4, too_long=too_long)
    assert sum(len(example) for example in parts.kept) == kept
    lost = {entry["source"]: (entry["kind"], entry["tokens"]) for entry in ledger()}
    assert lost == {
        "a.jsonl:1": ("truncated", 1) if truncated else ("skipped", 5),  # token 5, or the row
        "a.jsonl:4": ("skipped", 1),  # one token has nothing before it that could predict it
    }
    assert kept + sum(tokens for _, tokens in lost.values()) == sum(map(len, ROWS)) == 11


def test_a_row_cut_short_does_not_count_against_the_budget(write, read, ledger) -> None:
    file = write("a.jsonl", [{"n": [1, 2, 3]}] * 4)
    parts = read(file, Numbers(), max_tokens=2, too_long="truncate_right", budget=0.0)
    assert (len(parts.kept), len(ledger())) == (4, 4)
    assert parts.summary.endswith("4 examples, 8 tokens, 4 supervised; 4 truncate_right")


def test_what_a_processor_altered_is_in_the_ledger_and_does_not_count_against_the_budget(write, read, ledger) -> None:
    notes = ("spells a control token: read as text", "another thing: done")
    parts = read(write("a.jsonl", [{}] * 2), Yields([Example.of([1, 2], [0, 1], notes=notes)]), budget=0.0)
    assert [(entry["source"], entry["kind"], entry["reason"]) for entry in ledger()] == [
        (source, "altered", note) for source in ("a.jsonl:1", "a.jsonl:2") for note in notes
    ]
    assert parts.summary.endswith("2 supervised; 2 spells a control token, 2 another thing")
    assert parts.kept[0].notes == ()


def test_a_row_without_anything_supervised_is_never_trained_on(fix_tok, write, read, ledger) -> None:
    from ike_data import InstructionProcessor

    file = write("a.jsonl", [{"prompt": "x" * 40, "response": "ok"}, {"prompt": "x", "response": "ok"}])
    parts = read(file, InstructionProcessor(fix_tok), max_tokens=16, too_long="truncate_right")
    assert [example.source for example in parts.kept] == ["a.jsonl:2"]
    (entry,) = ledger()
    assert entry["source"] == "a.jsonl:1"
    assert entry["reason"] == "no supervised token left: 43 tokens were cut to max_tokens = 16 (truncate_right)"


def bad_rows(count: int, *, of: int) -> bytes:
    return b"".join(b"{\n" if place < count else b'{"n":[1,2]}\n' for place in range(of))


def test_the_budget_is_a_share_of_all_rows(write, read) -> None:
    file = write("a.jsonl", bad_rows(2, of=200))
    assert len(read(file, Numbers(), budget=0.01).kept) == 198
    with pytest.raises(DataError) as raised:
        read(write("b.jsonl", bad_rows(3, of=200)), Numbers(), budget=0.01)
    assert str(raised.value).startswith(
        "train data: 3 of 200 rows (1.5%) can't be used, and data.ledger.budget allows 1.0%: 3 not valid JSON\n"
        "  b.jsonl:1: not valid JSON: "
    )


def test_a_refusal_shows_the_first_rows_and_where_the_others_are(write, read, tmp_path) -> None:
    with pytest.raises(DataError) as raised:
        read(write("a.jsonl", bad_rows(5, of=10)), Numbers(), budget=0.1)
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines[1:4]] == ["  a.jsonl:1", "  a.jsonl:2", "  a.jsonl:3"]
    assert lines[4] == f"  and 2 more in {tmp_path}/run/ledger.jsonl"
    assert len((tmp_path / "run/ledger.jsonl").read_text().splitlines()) == 5


def test_a_file_of_another_shape_is_refused_before_all_of_it_is_read(fix_tok, write, read) -> None:
    from ike_data import InstructionProcessor

    file = write("a.jsonl", [{"text": "x"}] * 300 + [{"prompt": "a", "response": "b"}] * 9700)
    with pytest.raises(DataError, match="none of the first 256 rows can be used: 256 no known shape"):
        read(file, InstructionProcessor(fix_tok))


def test_the_ledger_holds_every_dataset_and_the_last_reading_of_each(write, read, ledger) -> None:
    file = write("a.jsonl", bad_rows(1, of=3))
    for name in ("train", "helpful", "train"):
        read(file, Numbers(), name=name)
    assert [(entry["data"], entry["source"]) for entry in ledger()] == [
        ("helpful", "a.jsonl:1"),
        ("train", "a.jsonl:1"),
    ]


def test_a_limit_is_of_rows(write, read) -> None:
    assert first_tokens(read(write("a.jsonl", numbers(5)), Numbers(), limit=2).kept) == [0, 1]


def test_a_holdout_is_drawn_by_the_seed_and_parts_the_rows(write, read) -> None:
    file = write("a.jsonl", numbers(50))
    drawn = {}
    for seed in (1, 1, 2):
        parts = read(file, Numbers(), holdout=Holdout(count=10, share=0.0, seed=seed))
        kept, held_out = first_tokens(parts.kept), first_tokens(parts.held_out)
        assert sorted(kept + held_out) == list(range(50))
        assert (len(held_out), kept, held_out) == (10, sorted(kept), sorted(held_out))
        assert [example.index for example in parts.held_out] == list(range(10))
        assert drawn.setdefault(seed, held_out) == held_out
    assert drawn[1] != drawn[2]
    assert len(read(file, Numbers(), holdout=Holdout(count=0, share=0.1, seed=1)).held_out) == 5


def test_which_rows_are_held_out_does_not_depend_on_what_becomes_of_them(write, read) -> None:
    file = write("a.jsonl", numbers(50))
    holdout = Holdout(count=10, share=0.0, seed=1)
    whole = set(first_tokens(read(file, Numbers(), holdout=holdout).held_out))

    class Twice:
        def process(self, record: Any) -> Iterator[Any]:
            if record["n"][0] >= 25:
                yield Skip("half of them")
            else:
                yield from [*Numbers().process(record), *Numbers().process(record)]

    halved = read(file, Twice(), holdout=holdout)
    assert first_tokens(halved.held_out) == sorted([n for n in whole if n < 25] * 2)


@pytest.mark.parametrize(("count", "share", "said"), [(5, 0.0, "count = 5"), (0, 0.01, "share = 0.01")])
def test_a_holdout_leaves_something_on_both_sides(write, read, count, share, said) -> None:
    with pytest.raises(DataError, match=rf"data\.holdout\.{said} keeps \d of 5 rows; it must keep at least one"):
        read(write("a.jsonl", numbers(5)), Numbers(), holdout=Holdout(count=count, share=share, seed=1))


def test_a_full_disk_is_an_error_that_says_what_to_do(write, read, tmp_path, monkeypatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = write("a.jsonl", numbers(5))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError) as raised:
        read(file, Numbers())
    assert str(raised.value) == (
        f"train data: its store can't be written: {tmp_path / 'cache'}: No space left on device; free some space, or "
        "set data.cache to a folder on another disk"
    )


def test_nothing_but_the_dataset_is_left_in_the_folder(write, read, tmp_path) -> None:
    file = write("a.jsonl", numbers(2))
    for _ in range(2):
        read(file, Numbers())
    places = sorted(path.name for path in (tmp_path / "run/data/train").iterdir())
    assert places[0] == "host-00000"
    assert len(places) == 2  # and one announcement, of the last attempt
    assert json.loads((tmp_path / "run/data/train" / places[1]).read_text())["state"] == "ready"


def test_a_refused_dataset_leaves_no_half_built_store(write, read, tmp_path) -> None:
    with pytest.raises(DataError):
        read(write("a.jsonl", bad_rows(3, of=4)), Numbers(), budget=0.0)
    assert [path for path in (tmp_path / "run/data/train").iterdir() if path.is_dir()] == []


@attrs.frozen
class Thirds:
    """Two examples of a row, and a third that can't be used."""

    def process(self, record: Any) -> Iterator[Any]:
        yield Example.of([1, 2], [0, 1])
        yield Example.of([1, 7], [0, 1])
        yield Skip("a third: empty")


def test_a_row_of_which_something_is_learned_does_not_count_against_the_budget(write, read, ledger) -> None:
    parts = read(write("a.jsonl", [{}]), Thirds(), budget=0.0)
    assert len(parts.kept) == 2
    assert parts.summary == "train data: 1 rows, 2 examples, 4 tokens, 2 supervised; 0 rows not used (1 a third)"
    assert [entry["reason"] for entry in ledger()] == ["a third: empty"]
    assert parts.largest_token == 7
