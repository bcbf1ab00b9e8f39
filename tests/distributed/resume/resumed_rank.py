"""One rank that cuts runs short, takes them up again, and writes what their logs say.

python resumed_rank.py FOLDER MODEL
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from resumed_parts import AboveItsMean, CutError, CutsShort, MeanWeights
from safetensors.torch import save_file

from ike_core import TrainingPipeline, load_config

FOLDER, MODEL = Path(sys.argv[1]), sys.argv[2]
FOUND: dict[str, Any] = {}


def pipeline(name: str, *overrides: str, objective: Any = None, cut_after: int = 0) -> TrainingPipeline:
    """A run; one that is cut short ends in the step after `cut_after`."""
    config = load_config(
        FOLDER / "run.toml", f'model.path="{MODEL}"', f'run.name="{name}"', f'run.root="{FOLDER / "runs"}"', *overrides
    )
    hooks = {"mean": MeanWeights()} | ({"cut": CutsShort(cut_after)} if cut_after else {})
    return TrainingPipeline(train_forward_step_fn=objective, config=config, hooks=hooks)


def run(name: str, *overrides: str, objective: Any = None, cut_after: int = 0) -> Path:
    made = pipeline(name, *overrides, objective=objective, cut_after=cut_after)
    with suppress(CutError):
        made.run()
    if not cut_after:
        weights = {key: value.float().clone() for key, value in made.parts.engine.weights()}
        if made.parts.world.is_first:
            save_file(weights, FOLDER / f"{name}.safetensors")
    return made.parts.setup.folder


def twice(name: str, stage: int, *more: str, new_objective: Any = None) -> None:
    """Whole, and cut short twice: after its second save, and before the next."""
    keys = (f"engine.zero_stage={stage}", *more) + (() if new_objective else ('objective.uses="ike_tasks:SFT"',))
    made = new_objective or (lambda: None)
    run(f"whole-{name}", *keys, objective=made())
    folders = [run(f"cut-{name}", *keys, objective=made(), cut_after=step) for step in (1, 4, 5)]
    folders.append(run(f"cut-{name}", *keys, objective=made()))
    FOUND[name] = [folder.name for folder in folders]


def moved(name: str, source: str, *stages: int) -> None:
    """Each stage takes up what the one before has left."""
    (folder,) = {run(name, f"engine.zero_stage={source}", 'objective.uses="ike_tasks:SFT"', cut_after=3)}
    for number, stage in enumerate(stages):
        keys = [f"engine.zero_stage={stage}", 'objective.uses="ike_tasks:SFT"', f'checkpoint.resume="{folder}"']
        last = number == len(stages) - 1
        run(name, *keys, **({} if last else {"cut_after": 5 + 2 * number}))
    FOUND[name] = [folder.name]


def main() -> None:
    for stage in range(4):
        twice(f"sft-{stage}", stage)
    for stage in (1, 3):
        twice(f"bf16-{stage}", stage, 'engine.precision="bf16"')
    twice("coupled-2", 2, new_objective=AboveItsMean)
    moved("moved", "3", 0, 2, 1)
    run("left", "engine.zero_stage=3", 'objective.uses="ike_tasks:SFT"', cut_after=5)
    (FOLDER / "found.json").write_text(json.dumps(FOUND))


if __name__ == "__main__":
    main()
