"""One rank of the grid: trains every cell it is told, in one process group, and writes what each step did.

python grid_rank.py CELLS.json OUT_FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from parts import Spread, TwoTerms, lift_norms, plain
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from ike_core import TrainingPipeline, load_config
from ike_core.cutting import Cut

OBJECTIVES = {"two": TwoTerms(), "spread": Spread(), "plain": plain, "sft": None}


def cut_by(name: str) -> Any:
    """A cut handed in by the test: '2x5' deals to 2 ranks in 5 micro-batches, unevenly, some of them filler."""

    def cut(sizes: Any, ranks: int, ceiling: Any, rows: Any) -> Cut:
        micro_batches = int(name.split("x")[1])
        if ranks == 2 and micro_batches == 1:  # a rank with nothing but filler
            return [[list(range(len(sizes)))], [[]]]
        hands: Cut = [[[] for _ in range(micro_batches)] for _ in range(ranks)]
        for position in range(len(sizes)):
            place = position * position % (ranks * micro_batches)  # squares: some places get nothing
            hands[place % ranks][place // ranks].append(position)
        return hands

    return cut


def train(cell: dict[str, Any], out: Path) -> None:
    config = load_config(cell["config"], *cell["overrides"], f'run.root="{out}"')
    model = AutoModelForCausalLM.from_pretrained(
        cell["model"], dtype=getattr(torch, cell["dtype"]), attn_implementation="sdpa"
    )
    pipeline = TrainingPipeline(
        model=model, train_forward_step_fn=OBJECTIVES[cell["objective"]], config=config, cut=cut_by(cell["cut"])
    )
    loss = pipeline.run()
    weights = {name: tensor.clone() for name, tensor in pipeline.parts.engine.weights()}
    if pipeline.parts.world.is_first:
        lines = [json.loads(line) for line in (out / pipeline.file_id / "log.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "grad_norm" in line]
        assert steps[-1]["loss"] == loss
        (out / f"{cell['name']}.json").write_text(json.dumps(steps))
        save_file(weights, out / f"{cell['name']}.safetensors")


if __name__ == "__main__":
    cells, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for cell in cells:
        if cell["dtype"] == "float64":
            lift_norms()
        train(cell, out)
