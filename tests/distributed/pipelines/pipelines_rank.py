"""One rank that runs scenarios in one process group, and writes what it found.

python pipelines_rank.py FOLDER MODEL
"""

import json
import sys
from pathlib import Path
from typing import Any

from lab_parts import Drift, Explodes
from safetensors.torch import save_file

from ike_core import InferencePipeline, TrainingError, TrainingPipeline, load_config

FOLDER, MODEL = Path(sys.argv[1]), sys.argv[2]
QUESTIONS = FOLDER / "questions.jsonl"
FOUND: dict[str, Any] = {}


def pipeline(name: str, *overrides: str, objective: Any = None) -> TrainingPipeline:
    config = load_config(
        FOLDER / "run.toml", f'model.path="{MODEL}"', f'run.name="{name}"', f'run.root="{FOLDER / "runs"}"', *overrides
    )
    return TrainingPipeline(train_forward_step_fn=objective, config=config)


def log_of(run: TrainingPipeline) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.parts.setup.folder / "log.jsonl").read_text().splitlines()]


def keep_weights(name: str, run: TrainingPipeline) -> None:
    weights = {key: value.float().clone() for key, value in run.parts.engine.weights()}
    if run.parts.world.is_first:
        save_file(weights, FOLDER / f"{name}.safetensors")


def stop_on_nonfinite(stage: int) -> None:
    run = pipeline(f"stop-{stage}", f"engine.zero_stage={stage}", objective=Explodes(step=1, number=3))
    try:
        run.run()
    except TrainingError as error:
        FOUND[f"stop-{stage}"] = run.parts.world.gather(str(error))
    keep_weights(f"stop-{stage}", run)


def one_step(stage: int) -> None:
    run = pipeline(f"one-{stage}", f"engine.zero_stage={stage}", "length.steps=1", objective=Explodes(step=9, number=3))
    run.run()
    keep_weights(f"one-{stage}", run)


def skip_nonfinite(stage: int) -> None:
    skip = ['engine.on_nonfinite="skip"', "engine.skip_budget=1"]
    run = pipeline(f"skip-{stage}", f"engine.zero_stage={stage}", *skip, objective=Explodes(step=1, number=3))
    run.run()
    FOUND[f"skip-{stage}"] = [run.progress.skipped, [line.get("loss") for line in log_of(run)]]


def frozen_reference(stage: int) -> None:
    table = ['frozen.reference.uses="ike_core.runtime:PretrainedModel"']
    run = pipeline(f"frozen-{stage}", f"engine.zero_stage={stage}", *table, "optimizer.peak_lr=1e-2", objective=Drift())
    run.run()
    FOUND[f"frozen-{stage}"] = [[line["drift"], line["reference"]] for line in log_of(run) if "drift" in line]


def grown(stage: int) -> None:
    """Two tokens added to the tokenizer: the policy, its frozen copy and what is saved have room for them."""
    keys = [
        'frozen.reference.uses="ike_core.runtime:PretrainedModel"',
        'checkpoint.uses="ike_ckpt:SafetensorsStore"',
        'tokenizer.add_tokens=["<call>", "</call>"]',
        f'data.train.files=["{FOLDER / "grown.jsonl"}"]',
        f'data.valid.same.files=["{FOLDER / "grown.jsonl"}"]',
    ]
    name = f"grown-{stage}"
    run = pipeline(name, f"engine.zero_stage={stage}", *keys, "optimizer.peak_lr=1e-2", objective=Drift())
    run.run()
    FOUND[name] = [str(run.parts.setup.folder / "step-000003" / "model"), log_of(run)]


def frozen_base(stage: int) -> None:
    """Case B89 with a frozen base: one block learns, and the saved folder is whole."""
    keys = [
        'model.train=["layers.4."]',
        'checkpoint.uses="ike_ckpt:SafetensorsStore"',
        'objective.uses="ike_tasks:SFT"',
    ]
    run = pipeline(f"block-{stage}", f"engine.zero_stage={stage}", *keys)
    run.run()
    FOUND[f"block-{stage}"] = str(run.parts.setup.folder / "step-000003" / "model")


def recomputed(stage: int) -> None:
    keys = ["model.activation_checkpointing=true", 'objective.uses="ike_tasks:SFT"', f"engine.zero_stage={stage}"]
    FOUND[f"recomputed-{stage}"] = pipeline(f"recomputed-{stage}", *keys).run()
    FOUND[f"kept-{stage}"] = pipeline(f"kept-{stage}", *keys[1:]).run()


def groups() -> None:
    """The embedding has a rate and a schedule of its own."""
    keys = [
        'optimizer.groups.embedding={match="embed", lr_scale=2.0, schedule={uses="ike_core:Schedule", shape="linear"}}',
        'objective.uses="ike_tasks:SFT"',
        "engine.zero_stage=2",
    ]
    run = pipeline("groups", *keys)
    run.run()
    FOUND["groups"] = sorted({(g["name"], g["lr"]) for g in run.parts.engine.model.optimizer.param_groups})


def generate_while_training(stage: int) -> None:
    """Answers of unequal length on the ranks, in a run: every rank goes on until all are done."""
    keys = [
        'evaluate.answers={uses="ike_tasks:Generate", prompt="question", max_new_tokens=24}',
        f'evaluate.answers.files=["{QUESTIONS}"]',
        'objective.uses="ike_tasks:SFT"',
        f"engine.zero_stage={stage}",
        "batch.examples_per_device=1",
    ]
    run = pipeline(f"generate-{stage}", *keys)
    run.run()
    FOUND[f"generate-{stage}"] = [
        {k: v for k, v in line.items() if k.startswith("evaluate/")} for line in log_of(run) if line["step"] in (0, 3)
    ]


def infer(stage: int, sampled: float) -> None:
    name = f"infer-{stage}-{sampled:g}"
    config = load_config(
        f'model.path="{MODEL}"', f'run.root="{FOLDER / "runs"}"', f"engine.zero_stage={stage}",
        'inference.uses="ike_tasks:Generate"', 'inference.prompt="question"', f'inference.files=["{QUESTIONS}"]',
        f'inference.output="{FOLDER / name}.{len(FOUND["ranks"])}.jsonl"', "inference.max_new_tokens=16",
        f"inference.temperature={sampled}", "batch.examples_per_device=2",
    )  # fmt: skip
    FOUND[name] = str(InferencePipeline(config=config).run())


def broken_trackers() -> None:
    keys = ['trackers.none={uses="lab_parts:NoNetwork"}', 'trackers.away={uses="lab_parts:GoesAway"}']
    run = pipeline("trackers", *keys, 'objective.uses="ike_tasks:SFT"', "length.steps=5")
    run.run()
    FOUND["trackers"] = len([line for line in log_of(run) if "loss" in line])


def bf16(stage: int) -> None:
    keys = ['engine.precision="bf16"', f"engine.zero_stage={stage}", 'objective.uses="ike_tasks:SFT"']
    run = pipeline(f"bf16-{stage}", *keys)
    from deepspeed.utils import safe_get_full_fp32_param
    from safetensors.torch import load_file

    engine, file = run.parts.engine, load_file(Path(MODEL) / "model.safetensors")
    named = [(name, safe_get_full_fp32_param(p)) for name, p in engine.names.module.named_parameters()]
    FOUND[f"bf16-masters-{stage}"] = all(bool((master == file[name].float()).all()) for name, master in named)
    run.run()
    FOUND[f"bf16-{stage}"] = [line["loss"] for line in log_of(run) if "loss" in line]


def main() -> None:
    FOUND["ranks"] = pipeline("who", 'objective.uses="ike_tasks:SFT"').parts.world.gather(0)
    for stage in range(4):
        one_step(stage)
        stop_on_nonfinite(stage)
        skip_nonfinite(stage)
    for stage in (0, 3):
        frozen_reference(stage)
        grown(stage)
        frozen_base(stage)
        generate_while_training(stage)
        infer(stage, 0.0)
        infer(stage, 1.0)
    recomputed(3)
    groups()
    broken_trackers()
    bf16(1)
    bf16(2)
    (FOLDER / f"found-{len(FOUND['ranks'])}.json").write_text(json.dumps(FOUND))


if __name__ == "__main__":
    main()
