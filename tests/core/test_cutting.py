"""However a step is cut, every example is in it once, under the ceilings, alike in number on every rank."""

import json
import math
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core.cutting import Ceiling, cost, cut
from ike_core.errors import ConfigError

SIZES = st.lists(st.integers(1, 100), min_size=1, max_size=60)


def padded_tokens(micro_batch: Sequence[int], sizes: Sequence[int], rows: Sequence[int]) -> int:
    return sum(rows[p] for p in micro_batch) * max(sizes[p] for p in micro_batch)


@given(SIZES, st.integers(1, 7), st.integers(100, 400), st.integers(0, 5), st.booleans())
def test_a_cut_holds_every_example_once_under_the_ceilings(
    sizes: list[int], ranks: int, tokens: int, examples: int, pads: bool
) -> None:
    made = cut(sizes, ranks, Ceiling(tokens, examples, pads))
    dealt = [position for hand in made for micro_batch in hand for position in micro_batch]
    assert sorted(dealt) == list(range(len(sizes)))
    assert len(made) == ranks
    assert len({len(hand) for hand in made}) == 1
    for hand in made:
        for micro_batch in filter(None, hand):
            mine = [sizes[position] for position in micro_batch]
            assert (len(mine) * max(mine) if pads else sum(mine)) <= tokens
            assert not examples or len(mine) <= examples


@given(SIZES, st.integers(1, 7), st.booleans())
def test_a_cut_is_the_same_each_time(sizes: list[int], ranks: int, pads: bool) -> None:
    assert cut(sizes, ranks, Ceiling(150, 4, pads)) == cut(list(sizes), ranks, Ceiling(150, 4, pads))


def test_fewer_examples_than_ranks_leaves_filler_on_the_others() -> None:
    """Case B17, 3 rows on 4 ranks: nothing is repeated, and the fourth rank has one micro-batch without examples."""
    made = cut([5, 7, 6], 4, Ceiling(64))
    assert sorted(hand[0] for hand in made) == [[], [0], [1], [2]]


def test_17_examples_on_2_ranks_are_17_examples() -> None:
    """Case B25: nothing need divide anything."""
    made = cut([10] * 17, 2, Ceiling(40))
    assert sorted(position for hand in made for micro in hand for position in micro) == list(range(17))
    assert [len(hand) for hand in made] == [3, 3]  # 170 tokens in micro-batches of 4: 5, so 3 on each of 2 ranks


# -- how many micro-batches, how even -----------------------------------------------------------------------------


def fewest_bins(sizes: Sequence[int], room: int) -> int:
    """By trying every assignment, up to names of bins."""
    best = len(sizes)

    def place(position: int, rooms: list[int]) -> None:
        nonlocal best
        if len(rooms) >= best:
            return
        if position == len(sizes):
            best = len(rooms)
            return
        for number, left in enumerate(rooms):
            if left >= sizes[position]:
                place(position + 1, [*rooms[:number], left - sizes[position], *rooms[number + 1 :]])
        place(position + 1, [*rooms, room - sizes[position]])

    place(0, [])
    return best


@given(st.lists(st.integers(1, 10), min_size=1, max_size=8))
def test_micro_batches_are_at_most_one_more_than_the_fewest_there_could_be(sizes: list[int]) -> None:
    assert len(cut(sizes, 1, Ceiling(10))[0]) <= fewest_bins(sizes, 10) + 1


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 2)), min_size=1, max_size=4))
def test_padded_micro_batches_are_the_fewest_there_could_be(examples: list[tuple[int, int]]) -> None:
    sizes, rows = [size for size, _ in examples], [count for _, count in examples]
    micro_batches = cut(sizes, 1, Ceiling(20, pads=True), rows)[0]
    fewest = min(
        len(set(names))
        for names in product(range(len(sizes)), repeat=len(sizes))
        if all(padded_tokens([p for p, n in enumerate(names) if n == name], sizes, rows) <= 20 for name in set(names))
    )
    assert len(micro_batches) <= fewest + any(count > 1 for count in rows)


def test_a_full_step_is_cut_into_as_many_micro_batches_as_its_tokens_need() -> None:
    """10,000 lengths like those of conversations on 8 ranks: as many as the tokens alone would need, plus one."""
    lengths = random.Random(0)
    sizes = [min(2048, int(lengths.lognormvariate(5.5, 0.8)) + 1) for _ in range(10_000)]
    least = math.ceil(sum(sizes) / 8192 / 8)
    assert len(cut(sizes, 8, Ceiling(8192))[0]) <= least + 1


def test_a_limit_of_examples_costs_no_micro_batches() -> None:
    """20 of 50 tokens and 40 of 1, three in a micro-batch of 100: 50 + 1 + 1 makes 20, and 50 + 50 would make more."""
    assert len(cut([50] * 20 + [1] * 40, 1, Ceiling(100, 3))[0]) == 20


def test_the_load_is_even_over_ranks_on_real_lengths(shared_data: Path) -> None:
    """64 examples on 8 ranks of gsm8k and fastchat, 4 characters a token: the busiest at most 3 % above the mean."""
    lengths = real_lengths(shared_data)
    draw = random.Random(0)
    for _ in range(50):
        sizes = draw.sample(lengths, 64)
        made = cut(sizes, 8, Ceiling(8192))
        loads = [sum(cost(sizes[p]) for micro in hand for p in micro) for hand in made]
        assert max(loads) / (sum(loads) / 8) <= 1.03
        assert len(made[0]) <= math.ceil(sum(sizes) / 8192 / 8) + 1


def real_lengths(data: Path) -> list[int]:
    """Characters / 4 of each row, at least 1, at most 2048."""
    lines = (data / "gsm8k" / "grade_school_math__data__test.jsonl").read_text(encoding="utf-8").splitlines()
    texts = ["".join(map(str, json.loads(line).values())) for line in lines]
    chats = json.loads((data / "fastchat" / "data__dummy_conversation.json").read_text(encoding="utf-8"))
    texts += ["".join(turn["value"] for turn in chat["conversations"]) for chat in chats]
    return [min(2048, len(text) // 4 + 1) for text in texts]


def test_ranks_with_several_micro_batches_are_even_too() -> None:
    """By the sum over their micro-batches: what one long example costs more, its rank makes up for in another."""
    draw = random.Random(0)
    sizes = [2048, *(draw.randint(100, 500) for _ in range(60))]
    made = cut(sizes, 4, Ceiling(2048))
    loads = [sum(cost(sizes[p]) for micro in hand for p in micro) for hand in made]
    assert len(made[0]) > 1
    assert max(loads) / (sum(loads) / 4) <= 1.03


def test_padded_rows_are_cut_by_their_longest() -> None:
    """Lengths 8, 8, 2, 2 under 16 padded tokens: the long ones together, the short ones together."""
    made = cut([8, 2, 8, 2], 1, Ceiling(16, pads=True))
    assert made[0] == [[0, 2], [1, 3]]


def test_padded_rows_that_fit_in_one_micro_batch_still_go_to_all_ranks() -> None:
    """16 rows of one length on 8 ranks: two each, though one rank could hold them all."""
    assert [len(hand[0]) for hand in cut([10] * 16, 8, Ceiling(8192, pads=True))] == [2] * 8


def test_every_branch_is_a_padded_row_with_its_trunk_repeated() -> None:
    """Pairs of two rows of 10: 40 tokens hold two pairs, and no third."""
    assert [len(micro) for micro in cut([10, 10, 10], 1, Ceiling(40, pads=True), [2, 2, 2])[0]] == [2, 1]


def test_an_example_that_nothing_can_hold_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"batch\.tokens_per_device = 512 can't hold an example of 611 tokens"):
        cut([10, 611], 1, Ceiling(512))
    with pytest.raises(ConfigError, match=r"= 512 can't hold an example that takes 2 padded rows of 300 tokens"):
        cut([400, 300], 1, Ceiling(512, pads=True), [1, 2])
