"""What a run would be."""

from pathlib import Path

import pytest

from ike_core.config import load_config
from ike_core.errors import ConfigError, DataError
from ike_launch.devices import Gpus
from ike_launch.plan import Plan

CPU = Gpus(0, "the NVIDIA driver")


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "more.jsonl").touch()
    (tmp_path / "model").mkdir()
    path = tmp_path / "run.toml"
    path.write_text('[model]\npath = "model"\n[data.train]\nfiles = ["*.jsonl"]\n[batch]\nexamples_per_step = 17\n')
    return path


def facts(plan: Plan) -> dict[str, str]:
    lines = [line.strip().split("  ", 1) for line in plan.text().splitlines()[1:]]
    return {name: value.strip() for name, value in lines}


def test_nothing_need_divide_anything(run_file: Path) -> None:
    """B25: 17 examples on 2 ranks are 17 examples."""
    told = facts(Plan.of(load_config(run_file, "launch.ranks=2"), "train", CPU))
    assert told["batch.examples_per_step"] == "17 over all ranks: 8.5 a rank on average, none repeated or dropped"
    assert told["ranks"] == "2 on this machine (no GPU seen: on the CPU)"
    told = facts(Plan.of(load_config(run_file, "launch.ranks=2", "batch.examples_per_step=16"), "train", CPU))
    assert told["batch.examples_per_step"] == "16 over all ranks: 8 a rank"


def test_a_ceiling_of_a_micro_batch_is_no_divisor(run_file: Path) -> None:
    """B25: micro = 4, with and without the rest of the triad."""
    config = load_config(run_file, "launch.ranks=2", "batch.examples_per_device=4", "batch.tokens_per_device=100")
    told = facts(Plan.of(config, "train", CPU))
    assert told["micro-batch"] == "at most 100 tokens and 4 examples on one rank, as many as a step needs"


def test_fewer_examples_than_ranks_are_refused_with_both_numbers(run_file: Path) -> None:
    """B25."""
    config = load_config(run_file, "launch.ranks=3", "batch.examples_per_step=2")
    with pytest.raises(
        ConfigError, match=r"batch\.examples_per_step = 2 can't be dealt to 3 ranks.*launch\.ranks <= 2"
    ):
        Plan.of(config, "train", CPU)


def test_who_set_too_few_examples_is_named(run_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.toml:6"):
        Plan.of(load_config(run_file, "launch.ranks=18"), "train", CPU)


def test_auto_ranks_follow_the_gpus(run_file: Path) -> None:
    plan = Plan.of(load_config(run_file), "train", Gpus(4, "the NVIDIA driver"))
    assert plan.ranks == 4
    assert facts(plan)["ranks"] == "4 on this machine (4 GPUs by the NVIDIA driver)"


def test_files_are_found_and_named(run_file: Path) -> None:
    told = facts(Plan.of(load_config(run_file), "train", CPU))
    assert told["data.train.files"] == f"2 files, first {run_file.parent / 'more.jsonl'}"
    assert told["run"] == f"run, in {Path('runs').absolute()}"


def test_a_missing_file_is_an_error_with_its_neighbours(run_file: Path) -> None:
    config = load_config(run_file, f'data.valid.helpful.files=["{run_file.parent / "rovs.jsonl"}"]')
    with pytest.raises(DataError, match=r"data\.valid\.helpful\.files: there is no file .*rovs\.jsonl .*more\.jsonl"):
        Plan.of(config, "train", CPU)


def test_inference_is_told_by_its_own_table(run_file: Path) -> None:
    """A step's examples are nothing to it."""
    rows, output = str(run_file.parent / "rows.jsonl"), str(run_file.parent / "answers.jsonl")
    config = load_config(
        run_file,
        "launch.ranks=3",
        "batch.examples_per_step=2",
        f'inference.files=["{rows}"]',
        f"inference.output={output}",
    )
    told = facts(Plan.of(config, "infer", CPU))
    assert told["inference.files"] == rows
    assert told["inference.output"] == output


def test_inference_needs_its_table(run_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[inference\]"):
        Plan.of(load_config(run_file), "infer", CPU)
