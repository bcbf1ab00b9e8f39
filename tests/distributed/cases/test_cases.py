"""Faults that users of comparable frameworks have met, on real ranks: each on a model whose every number is known.

theta = 0, logits [theta, 0]: a token's loss is ln 2 times its row's scale, its slope -1/2 for label 0 and +1/2 for
label 1; SGD with a learning rate of 1. The cases of one world size share a process group. docs/cases.md lists them all.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

HERE = Path(__file__).parent
DEADLINE_SECONDS = 300
LN2 = math.log(2)
RUN = """
[run]
root = "runs"
[model]
uses = "case_parts:Model"
[data.train]
files = ["pair.jsonl"]
processor = { uses = "case_parts:Labels" }
[objective]
uses = "case_parts:Scaled"
[engine]
uses = "ike_core.runtime:DeepSpeed"
zero_stage = 1
clip_norm = 0.0
[optimizer]
uses = "case_parts:Descent"
peak_lr = 1.0
[batch]
examples_per_step = 2
collate = { uses = "ike_core.runtime:Padded" }
[length]
steps = 1
[cadence]
log = { steps = 1 }
"""
ROWS: dict[str, list[dict[str, Any]]] = {
    "pair": [{"labels": [1]}, {"labels": [0, 0, 0]}],
    "scaled": [{"labels": [1], "scale": 4.0}, {"labels": [0, 0, 0], "scale": 1.0}],
    "valid": [{"labels": [0], "scale": 4.0}, {"labels": [0] * 3, "scale": 1.0}, {"labels": [0] * 2, "scale": 2.0}],
    "seventeen": [{"labels": [1]}, *[{"labels": [0]}] * 16],
    "single": [{"labels": [0, 0, 0]}],
    "three": [{"labels": [1]}, {"labels": [0, 0, 0]}, {"labels": [0]}],
    "records": [{"number": n, "tokens": [0] * (0 if n == 70 else n % 5 + 1)} for n in range(300)],
}

pytestmark = pytest.mark.timeout(3 * DEADLINE_SECONDS)
Found = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    (folder / "run.toml").write_text(RUN)
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def ran(ranks: Ranks, size: int, folder: Path) -> Found:
    """What the cases of this world size found."""
    ranks(size, HERE / "cases_rank.py", folder, cwd=folder, deadline_seconds=DEADLINE_SECONDS).check()
    found: Found = json.loads((folder / f"found-{size}.json").read_text())
    return found


@pytest.fixture(scope="module")
def one_rank(folder: Path, ranks: Ranks) -> Found:
    return ran(ranks, 1, folder)


@pytest.fixture(scope="module")
def two_ranks(folder: Path, ranks: Ranks) -> Found:
    return ran(ranks, 2, folder)


@pytest.fixture(scope="module")
def four_ranks(folder: Path, ranks: Ranks) -> Found:
    return ran(ranks, 4, folder)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("micro_batches", ["one", "two"])
def test_ike_and_deepspeed_divide_once_between_them(one_rank: Found, stage: int, micro_batches: str) -> None:
    """B03: (0.5 - 3 * 0.5) / 4 = -0.25 whatever the micro-batches; divided twice, two of them would give -0.125."""
    found = one_rank[f"{micro_batches}-{stage}"]
    assert found["theta"] == [0.25]
    assert [line["grad_norm"] for line in found["log"]] == [0.25]


def test_a_row_a_rank_is_divided_by_the_tokens_of_both(two_ranks: Found) -> None:
    """B01: token losses 4 and 1, 1, 1 (times ln 2): (4 + 3) / 4, not the mean of means 2.5; slopes 4/2 and -3/2."""
    found = two_ranks["row-a-rank"]
    assert [line["loss"] for line in found["log"]] == pytest.approx([1.75 * LN2])
    assert found["theta"] == [-(4 * 0.5 - 3 * 0.5) / 4]


def test_the_learning_rate_follows_updates_not_ranks(two_ranks: Found) -> None:
    """B13: stepped by each of two ranks it would be 0, 1, 0.75, 0.5, 0.25, 0 ..."""
    rates = [line["learning_rate"] for line in two_ranks["rates"]["log"]]
    assert rates == pytest.approx([0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_an_evaluation_over_ranks_counts_every_token_once(two_ranks: Found, at_once: int) -> None:
    """B15: token losses 4 | 1 1 1 | 2 2 (times ln 2): (4 + 3 + 4) / 6, before the update and after it."""
    losses = [line["valid/v/loss"] for line in two_ranks[f"valid-{at_once}"]["log"]]
    assert losses == pytest.approx([11 / 6 * LN2] * 2)


def test_seventeen_examples_on_two_ranks_are_seventeen(two_ranks: Found) -> None:
    """B25: one label 1 and sixteen labels 0, none repeated and none dropped: a slope of (0.5 - 16 * 0.5) / 17."""
    found = two_ranks["seventeen"]
    assert found["theta"] == pytest.approx([7.5 / 17])
    (line,) = found["log"]
    assert (line["examples"], line["supervised_tokens"]) == (17, 17)
    assert line["loss"] == pytest.approx(LN2)


def test_a_mixture_is_the_same_rows_step_by_step_on_any_number_of_ranks(one_rank: Found, two_ranks: Found) -> None:
    """84 rows: all of 'seventeen' twice, which is its cap, and then 'valid' alone."""
    assert one_rank["mixed"] == two_ranks["mixed"]
    rows = [name for step in one_rank["mixed"]["steps"] for name in step]
    assert sorted(name for name in rows if "seventeen" in name) == sorted(
        [f"seventeen.jsonl:{line}" for line in range(1, 18)] * 2
    )
    assert one_rank["mixed"]["counts"][-1]["data/a/examples"] == 34
    assert one_rank["mixed"]["counts"][-1]["data/b/examples"] == 84 - 34


@pytest.mark.parametrize("stage", [1, 3])
def test_a_run_can_be_made_of_the_users_own_parts(two_ranks: Found, stage: int) -> None:
    """ModelPart, OptimizerPart and SchedulePart, by where theta ends: its slope is sigma(theta) - 3/4."""
    theta = 0.0
    for step in range(3):
        theta -= 0.5**step * (1 / (1 + math.exp(-theta)) - 0.75)
    assert two_ranks[f"own-{stage}"]["theta"] == pytest.approx([theta], abs=1e-6)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_users_task_sees_every_row_once_and_in_order(two_ranks: Found, stage: int) -> None:
    """InferenceTask in [evaluate.echo]: 300 records of 1 to 5 tokens on two ranks, and one without tokens."""
    log = [line for line in two_ranks[f"own-{stage}"]["log"] if "evaluate/echo/rows" in line]
    assert [line["step"] for line in log] == [0, 2, 3]
    tokens = sum(n % 5 + 1 for n in range(300) if n != 70)
    for line in log:
        told = {key.removeprefix("evaluate/echo/"): value for key, value in line.items() if "echo" in key}
        assert told == {"rows": 299, "in_order": 1, "tokens": tokens, "ranks": 2, "skipped": 1}


@pytest.mark.parametrize("stage", [1, 3])
def test_a_users_hook_is_called_at_every_moment_on_every_rank(two_ranks: Found, stage: int) -> None:
    """Hook and Stateful: what it saw is its state, and comes back from JSON."""
    seen, comes_back = two_ranks[f"own-{stage}-seen"]
    expected = [
        "after evaluation at 0: 299 rows",
        *("before update 1", "after update 1"),
        *("before update 2", "after update 2", "after evaluation at 2: 299 rows", "after save of step-000002"),
        *("before update 3", "after update 3", "after evaluation at 3: 299 rows", "after save of step-000003"),
    ]
    assert seen == [{"seen": expected}] * 2
    assert comes_back


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize(
    ("rows", "theta", "examples", "tokens"),
    [("single", 3 * 0.5 / 3, 1, 3), ("three", -(0.5 - 4 * 0.5) / 5, 3, 5)],
)
def test_fewer_rows_than_ranks_are_one_update_over_the_real_rows(
    four_ranks: Found, rows: str, theta: float, examples: int, tokens: int, micro_batches: int, stage: int
) -> None:
    """B17: three of four ranks, or one of four, have filler alone."""
    found = four_ranks[f"{rows}-{micro_batches}-{stage}"]
    assert found["theta"] == pytest.approx([theta])
    (line,) = found["log"]
    assert (line["step"], line["examples"], line["supervised_tokens"]) == (1, examples, tokens)
    assert line["loss"] == pytest.approx(LN2)


@pytest.mark.usefixtures("four_ranks")
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("too-few-examples", 2, "batch.examples_per_step = 2 can't be dealt to 4 ranks; raise it to at least 4"),
        ("other-shape", 3, "records.jsonl:1: Labels.process raised KeyError: 'labels'"),
    ],
)
def test_what_can_not_go_on_ends_every_rank_alike(folder: Path, name: str, code: int, said: str) -> None:
    """B17 and B99: the same clear error on every rank, each with the exit code of its kind."""
    assert [(folder / f"{name}-{rank}.code").read_text() for rank in range(4)] == [str(code)] * 4
    messages = [json.loads((folder / f"{name}-{rank}.json").read_text())["message"] for rank in range(4)]
    assert messages == [messages[0]] * 4
    assert said in messages[0]


def test_ranks_with_skewed_clocks_share_one_run(four_ranks: Found, folder: Path) -> None:
    """B87: one folder, and both saves are in it."""
    (run,) = (folder / "runs").glob("skewed-*")
    assert four_ranks["skewed-ids"] == [run.name] * 4
    assert sorted(path.name for path in run.glob("step-*")) == ["step-000001", "step-000002"]


@pytest.mark.usefixtures("four_ranks")
def test_inference_deals_records_to_any_number_of_ranks(folder: Path) -> None:
    """InferenceTask in [inference], with batch.examples_per_step = 2, which is training's."""
    rows = [json.loads(line) for line in (folder / "echo.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == list(range(300))
    assert {row["rank"] for row in rows if "rank" in row} == {0, 1, 2, 3}
    assert [row["number"] for row in rows if row.get("skipped") == "no tokens"] == [70]
