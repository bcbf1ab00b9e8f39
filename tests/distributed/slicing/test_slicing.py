"""Promise 1: slicing never changes the update.

A step of 12 unequal examples, cut over ranks x micro-batches x packing x ZeRO stage, against a float64 reference that
computes each example alone. Cells of one world size share a process group.
"""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from reference import Reference, train
from safetensors.torch import load_file
from torch import Tensor

HERE = Path(__file__).parent
STEPS = 3
DEADLINE_SECONDS = 900
SGD = ['optimizer.uses="ike_core.runtime:SGD"', "optimizer.peak_lr=0.1"]
ADAMW = ['optimizer.uses="ike_core.runtime:AdamW"', "optimizer.peak_lr=1e-4"]
TOLERANCE = {
    "sgd": 2e-4,
    "adamw": 5e-3,
}  # of the 3-step change's norm, a tensor: what plain float32 torch keeps, doubled

CUTS = {1: ["1x1", "1x2", "1x5"], 2: ["2x1", "2x2", "2x5"]}
GRID = [
    (ranks, cut, rows, stage, objective, optimizer, model)
    for ranks in CUTS
    for cut, rows, stage, objective, optimizer, model in itertools.product(
        CUTS[ranks],
        ["packed", "padded"],
        [0, 1, 2, 3],
        ["sft", "plain", "two", "spread"],
        ["sgd", "adamw"],
        ["seeded", "stories260K"],
    )
    if not (objective == "plain" and rows == "packed")  # a plain function is given transformers' padded batch
]


def pairwise(cells: list[Any]) -> list[Any]:
    """Some cells in which every pair of settings occurs, found greedily in a fixed order."""

    def pairs(cell: Any) -> set[Any]:
        return {((i, cell[i]), (j, cell[j])) for i, j in itertools.combinations(range(len(cell)), 2)}

    shuffled = random.Random(0).sample(cells, len(cells))
    missing = set().union(*map(pairs, cells))
    chosen = []
    while missing:
        best = max(shuffled, key=lambda cell: len(pairs(cell) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def rows() -> list[dict[str, Any]]:
    """12 rows of 4 to 60 tokens; the prompt is not learned; one row learns a single token, one learns its first too."""
    draw = random.Random(5)
    made = []
    for number, length in enumerate([4, 60, 13, 25, 7, 41, 18, 33, 9, 52, 21, 28]):
        prompt = length - 1 if number == 4 else draw.randrange(1, length - 1)
        learned = [int(position >= prompt) for position in range(length)]
        made.append({"tokens": [draw.randrange(3, 500) for _ in range(length)], "learned": learned})
    made[2]["learned"][0] = 1  # has no predecessor, so it counts nowhere
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slicing")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    (folder / "run.toml").write_text(
        f"""
[run]
name = "cell"
[data.train]
files = ["rows.jsonl"]
processor = {{ uses = "parts:TokenRows" }}
[engine]
clip_norm = 0.0
[batch]
examples_per_step = 12
tokens_per_device = 4096
[length]
steps = {STEPS}
[cadence]
log = {{ steps = 1 }}
evaluate = {{ steps = 100 }}
"""
    )
    return folder


@pytest.fixture(scope="module")
def models(folder: Path, request: pytest.FixtureRequest) -> dict[str, Path]:
    """A seeded Llama of stories260K's shape, and, where it is there, stories260K.

    Its weights are wide: with the usual 0.02 a norm's weight (near 1) moves so little in 3 steps that float32's own
    rounding of it is 1e-3 of the move, in plain PyTorch too.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=172, num_hidden_layers=5, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=512, tie_word_embeddings=True, pad_token_id=2, eos_token_id=2,
        initializer_range=0.15,
    )  # fmt: skip
    torch.manual_seed(11)
    LlamaForCausalLM(config).save_pretrained(folder / "seeded")
    found = {"seeded": folder / "seeded"}
    shared = HERE.parents[3] / "shared" / "data" / "stories260K"
    return found | ({"stories260K": shared} if shared.is_dir() else {})


class References:
    """Made once each."""

    def __init__(self, models: dict[str, Path]) -> None:
        self._models = models
        self._made: dict[Any, Reference] = {}

    def __call__(self, model: str, objective: str, optimizer: str) -> Reference:
        key = (model, "sft" if objective == "plain" else objective, optimizer)
        if key not in self._made:
            self._made[key] = train(self._models[model], rows(), key[1], optimizer, STEPS)
        return self._made[key]


@pytest.fixture(scope="module")
def reference(models: dict[str, Path]) -> References:
    return References(models)


def run_cells(ranks: Ranks, size: int, cells: list[dict[str, Any]], folder: Path, patch: str = "") -> None:
    """All cells of a world size in one process group; fails with the ranks' output where one fails."""
    (folder / "cells.json").write_text(json.dumps(cells))
    (folder / "grid.py").write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(HERE)!r})\n{patch}\n"
        f"runpy.run_path({str(HERE / 'grid_rank.py')!r}, run_name='__main__')\n"
    )
    ranks(size, folder / "grid.py", folder / "cells.json", folder, deadline_seconds=DEADLINE_SECONDS).check()


def cell_of(setting: Any, folder: Path, models: dict[str, Path]) -> dict[str, Any]:
    _, cut, rows, stage, objective, optimizer, model = setting
    overrides = [*(SGD if optimizer == "sgd" else ADAMW), f"engine.zero_stage={stage}"]
    if objective == "sft":
        overrides.append('objective.uses="ike_tasks:SFT"')
    if rows == "padded" and objective != "plain":
        overrides.append('batch.packing="off"')
    elif objective != "plain":
        overrides.append('batch.packing="required"')
    name = "-".join(map(str, setting))
    return {
        "name": name, "config": str(folder / "run.toml"), "overrides": overrides, "cut": cut, "objective": objective,
        "model": str(models[model]), "dtype": "float32",
    }  # fmt: skip


def difference(reference: Reference, weights: dict[str, Tensor]) -> float:
    """Largest distance from the reference's change, in norms of the change, over tensors."""
    worst = 0.0
    for name, end in reference.end.items():
        change = end - reference.start[name]
        worst = max(worst, float((weights[name].double() - end).norm() / change.norm()))
    return worst


def check(setting: Any, folder: Path, reference: Reference, *, losses: float, change: float) -> None:
    name = "-".join(map(str, setting))
    steps = json.loads((folder / f"{name}.json").read_text())
    assert [step["loss"] for step in steps] == pytest.approx(reference.losses, rel=losses)
    assert [step["grad_norm"] for step in steps] == pytest.approx(reference.grad_norms, rel=losses)
    assert difference(reference, load_file(folder / f"{name}.safetensors")) < change


def check_grid(ranks: Ranks, grid: list[Any], folder: Path, models: dict[str, Path], reference: References) -> None:
    wrong = []
    for size in (1, 2):
        mine = [setting for setting in grid if setting[0] == size and setting[-1] in models]
        run_cells(ranks, size, [cell_of(setting, folder, models) for setting in mine], folder)
        for setting in mine:
            try:
                check(
                    setting,
                    folder,
                    reference(setting[6], setting[4], setting[5]),
                    losses=1e-5,
                    change=TOLERANCE[setting[5]],
                )
            except AssertionError as error:
                wrong.append(f"{setting}: {error}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.timeout(2 * DEADLINE_SECONDS)
def test_slicing_a_step_differently_does_not_change_the_update(
    ranks: Ranks, folder: Path, models: dict[str, Path], reference: References
) -> None:
    """DeepSpeed in float32, every pair of settings once."""
    check_grid(ranks, pairwise(GRID), folder, models, reference)


@pytest.mark.slow
@pytest.mark.timeout(8 * DEADLINE_SECONDS)
def test_the_whole_grid_of_slicings_agrees(
    ranks: Ranks, folder: Path, models: dict[str, Path], reference: References
) -> None:
    check_grid(ranks, GRID, folder, models, reference)


@pytest.mark.timeout(DEADLINE_SECONDS)
def test_the_plain_engine_is_the_reference_in_float64(
    ranks: Ranks, folder: Path, models: dict[str, Path], reference: References, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, gradient norm and every tensor's change to 1e-9, with RMSNorm lifted on both sides."""
    from parts import lift_norms
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    monkeypatch.setattr(LlamaRMSNorm, "forward", LlamaRMSNorm.forward)  # comes back after the test
    lift_norms()
    settings = [
        (1, cut, rows, "float64", objective, optimizer, model)
        for (cut, objective, model), rows, optimizer in zip(
            itertools.product(CUTS[1], ["sft", "two", "spread"], models),
            itertools.cycle(["packed", "padded", "packed"]),
            itertools.cycle(["sgd", "adamw"]),
            strict=False,
        )
    ]
    cells = []
    for setting in settings:
        cell = cell_of(setting, folder, models)
        # a table whose `uses` changes starts empty, so clip_norm is said again
        plain = ['engine.uses="ike_core.runtime:PlainTorch"', 'engine.precision="fp64"', "engine.clip_norm=0.0"]
        cell["overrides"] = [o for o in cell["overrides"] if "zero_stage" not in o] + plain
        cells.append(cell | {"dtype": "float64"})
    run_cells(ranks, 1, cells, folder)
    lifted = References(models)
    for setting in settings:
        check(setting, folder, lifted(setting[6], setting[4], setting[5]), losses=1e-9, change=1e-9)


BREAKS = {
    "divide per micro-batch": """
import attrs
from ike_core.training import TrainingPipeline

right = TrainingPipeline._undivided

def wrong(self, output, step, micro):
    weights = {name: (value or 1.0) * len(step.micro_batches) for name, value in micro.batch.weights.items()}
    return right(self, output, attrs.evolve(step, weights=weights), micro)

TrainingPipeline._undivided = wrong
""",
    "forget the ranks": """
from ike_core.training import TrainingPipeline

right = TrainingPipeline._undivided
TrainingPipeline._undivided = lambda self, *step: right(self, *step) / self.parts.world.size
""",
}


@pytest.mark.parametrize("broken", BREAKS)
def test_the_grid_sees_it_when_the_division_is_wrong(
    broken: str, ranks: Ranks, folder: Path, models: dict[str, Path], reference: References
) -> None:
    """Each break shows in the gradient norm and in the weights, under SGD."""
    setting = (2, "2x5", "packed", 1, "sft", "sgd", "seeded")
    out = folder / broken.replace(" ", "-")
    out.mkdir()
    run_cells(ranks, 2, [cell_of(setting, folder, models)], out, patch=BREAKS[broken])
    name = "-".join(map(str, setting))
    right = reference("seeded", "sft", "sgd")
    steps = json.loads((out / f"{name}.json").read_text())
    assert steps[0]["grad_norm"] != pytest.approx(right.grad_norms[0], rel=1e-2)
    assert difference(right, load_file(out / f"{name}.safetensors")) > 10 * TOLERANCE["sgd"]
    assert steps[2]["loss"] != pytest.approx(right.losses[2], rel=1e-5)
