"""Runs on two ranks under DeepSpeed, all in one process group; one rank is the yardstick where there is none better."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent
DEADLINE_SECONDS = 900
STAGES = pytest.mark.parametrize("stage", [0, 1, 2, 3])
ENDS = pytest.mark.parametrize("stage", [0, 3])
GROWN = [[5, 512, 30, 513, 400, 6], [7, 8, 9, 512, 10, 513], [512, 513], [20, 21, 22, 23]]
"""Ids of stories260K, which has 512, and of two tokens behind them; the second half is learned."""

pytestmark = pytest.mark.timeout(2 * DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines")
    draw = torch.Generator().manual_seed(3)
    rows = [torch.randint(3, 500, (length,), generator=draw).tolist() for length in (9, 30, 14, 22, 7, 18)]
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"tokens": row, "number": n}) + "\n" for n, row in enumerate(rows))
    )
    (folder / "grown.jsonl").write_text(
        "".join(json.dumps({"tokens": row, "number": n}) + "\n" for n, row in enumerate(GROWN))
    )
    questions = ["Once upon a time", "Lily", "The dog saw a big red ball and", "Tom", "One day a little bird"]
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps({"question": q, "id": n}) + "\n" for n, q in enumerate(questions))
    )
    (folder / "run.toml").write_text(
        """
[data.train]
files = ["rows.jsonl"]
processor = { uses = "lab_parts:TokenRows" }
[batch]
examples_per_step = 6
tokens_per_device = 64
[length]
steps = 3
[cadence]
log = { steps = 1 }
"""
    )
    return folder


@pytest.fixture(scope="module")
def found(folder: Path, stories: Path, ranks: Ranks) -> dict[int, dict[str, Any]]:
    """What each world size found, by the number of ranks."""
    for size in (2, 1):
        ranks(size, HERE / "pipelines_rank.py", folder, stories, deadline_seconds=DEADLINE_SECONDS).check()
    return {size: json.loads((folder / f"found-{size}.json").read_text()) for size in (1, 2)}


@STAGES
def test_a_step_that_is_not_finite_stops_every_rank_in_it_and_names_the_row(found: Any, stage: int) -> None:
    errors = found[2][f"stop-{stage}"]
    assert len(errors) == 2
    assert len(set(errors)) == 1
    assert errors[0].startswith("step 2: ")
    assert "rows.jsonl:4" in errors[0]
    assert "rows.jsonl:3" not in errors[0]


@STAGES
def test_a_step_that_is_not_finite_leaves_the_weights_of_the_step_before(found: Any, folder: Path, stage: int) -> None:
    before, after = (load_file(folder / f"{name}-{stage}.safetensors") for name in ("one", "stop"))
    assert all(torch.equal(before[name], after[name]) for name in before)


@STAGES
def test_a_step_that_is_not_finite_is_skipped_within_the_budget(found: Any, stage: int) -> None:
    skipped, losses = found[2][f"skip-{stage}"]
    assert skipped == 1
    assert [loss is None for loss in losses] == [False, True, False]


@ENDS
def test_a_frozen_model_is_the_policy_at_step_0_and_stays_it(found: Any, stage: int) -> None:
    (first_drift, reference), *later = found[2][f"frozen-{stage}"]
    assert first_drift == pytest.approx(0.0, abs=1e-6)
    assert all(drift > 0.01 for drift, _ in later)
    # the same rows in every step, so the same mean log-probability, cut differently or not
    assert [value for _, value in later] == pytest.approx([reference] * len(later), rel=1e-5)


def losses_of(model: Any) -> float:
    """-log p a token of the second halves, one row at a time."""
    total, count = 0.0, 0
    for row in GROWN:
        half = len(row) // 2
        logits = model(torch.tensor([row])).logits[0, half - 1 : -1]
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(row[half:]), reduction="sum").item()
        count += len(row) - half
    return total / count


@ENDS
def test_tokens_that_are_added_are_learned_and_saved_from_their_mean_on(found: Any, stories: Path, stage: int) -> None:
    folder, log = found[2][f"grown-{stage}"]
    start = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float32)
    old = start.get_input_embeddings().weight.data  # tied
    table = torch.nn.Parameter(torch.cat([old, old.mean(0).expand(2, -1)]))
    start.get_input_embeddings().weight = start.get_output_embeddings().weight = table
    expected = losses_of(start)
    assert log[0]["valid/same/loss"] == pytest.approx(expected, rel=1e-5)
    references = [-line["valid/same/reference"] for line in log]
    assert references == pytest.approx([expected] * 4)  # before the first step, and after each: an epoch is a step
    assert log[-1]["valid/same/loss"] < expected - 0.1

    saved, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert saved.config.vocab_size == saved.get_input_embeddings().weight.shape[0] == len(tokenizer) == 514
    assert tokenizer.encode("a<call>b</call>")[-3::2] == [512, 513]
    assert losses_of(saved) == pytest.approx(log[-1]["valid/same/loss"], rel=1e-5)
    other = found[2][f"grown-{3 - stage}"][1]
    assert [line["loss"] for line in log if "loss" in line] == pytest.approx(
        [line["loss"] for line in other if "loss" in line], rel=1e-4
    )


def test_one_trained_block_on_a_frozen_base_is_saved_whole_under_zero_3(found: Any, stories: Path) -> None:
    """Case B89: every tensor full, the base untouched, the block as without ZeRO."""
    start = AutoModelForCausalLM.from_pretrained(stories).state_dict()
    plain, sharded = (AutoModelForCausalLM.from_pretrained(found[2][f"block-{s}"]).state_dict() for s in (0, 3))
    for name, tensor in plain.items():
        assert torch.allclose(tensor, sharded[name], atol=1e-6), name
        assert torch.equal(tensor, start[name]) == ("layers.4." not in name), name


def test_recomputing_activations_changes_nothing(found: Any) -> None:
    assert found[2]["recomputed-3"] == pytest.approx(found[2]["kept-3"], rel=1e-6)


def test_a_group_has_its_own_rate_and_schedule(found: Any) -> None:
    """After update 2 of 3: the default group is constant at 1e-5, the embedding at 2 x 1e-5 x (1 - 2/3)."""
    rates = dict(found[2]["groups"])
    assert rates[""] == pytest.approx(1e-5)
    assert rates["embedding"] == pytest.approx(2e-5 / 3)


@ENDS
def test_generating_in_a_run_counts_every_question_once_on_any_ranks(found: Any, stage: int) -> None:
    assert found[2][f"generate-{stage}"][0] == found[1]["generate-0"][0]
    assert found[2][f"generate-{stage}"][0]["evaluate/answers/answer_tokens"] > 1


@ENDS
@pytest.mark.parametrize("temperature", ["0", "1"])
def test_inference_gives_the_same_rows_on_any_ranks(found: Any, folder: Path, stage: int, temperature: str) -> None:
    """Greedy and sampled: what is drawn belongs to the example, not to its batch."""
    one = [json.loads(line) for line in Path(found[1][f"infer-0-{temperature}"]).read_text().splitlines()]
    two = [json.loads(line) for line in Path(found[2][f"infer-{stage}-{temperature}"]).read_text().splitlines()]
    assert one == two
    assert [row["id"] for row in two] == [0, 1, 2, 3, 4]
    assert len({row["answer_tokens"] for row in two} | {row["answer"] for row in two}) > 1
    assert not list(folder.glob("*.partial"))


def test_a_tracker_that_fails_is_switched_off_and_the_run_goes_on(found: Any) -> None:
    """Case B19: its start raises, and another's third log; all 5 steps are in the local log."""
    assert found[2]["trackers"] == 5


@pytest.mark.parametrize("stage", [1, 2])
def test_masters_of_a_bf16_run_are_the_files_float32(found: Any, stage: int) -> None:
    assert found[2][f"bf16-masters-{stage}"]
    fp32 = found[2]["skip-0"][1][0]
    assert found[2][f"bf16-{stage}"][0] == pytest.approx(fp32, rel=0.02)
