"""One rank that runs the cases of its world size in one process group, and writes what it found.

python cases_rank.py FOLDER
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from case_parts import Watcher

import ike_ckpt.fileid
from ike_core import InferencePipeline, TrainingPipeline, load_config, worker
from ike_core.cutting import Cut

FOLDER = Path(sys.argv[1])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STAGES = range(4)
FOUND: dict[str, Any] = {}

Hands = Sequence[Sequence[Sequence[int]]]


def hand_out(hands: Hands) -> Callable[..., Cut]:
    """A cut by the test: hands[rank][micro-batch] are places in the step; what the step hasn't is left out."""

    def cut(sizes: Sequence[int], ranks: int, ceiling: Any, rows: Any) -> Cut:
        return [[[place for place in micro if place < len(sizes)] for micro in hand] for hand in hands]

    return cut


def layers(name: str, rows: str, *overrides: str) -> list[str]:
    """Of a run on the rows of that file, as the command line would give them."""
    own = [f'run.name="{name}"', f'data.train.files=["{FOLDER / rows}.jsonl"]', *overrides]
    return [str(FOLDER / "run.toml"), *own]


def train(name: str, rows: str, *overrides: str, hands: Hands | None = None) -> TrainingPipeline:
    """Runs to its end, and keeps theta and the log's lines under the name."""
    config = load_config(*layers(name, rows, *overrides))
    run = TrainingPipeline(config=config, cut=None if hands is None else hand_out(hands))
    run.run()
    theta = [tensor.item() for _, tensor in run.parts.engine.weights()]
    if run.parts.world.is_first:
        log = (run.parts.setup.folder / "log.jsonl").read_text().splitlines()
        FOUND[name] = {"theta": theta, "log": [json.loads(line) for line in log]}
    return run


def mixed() -> None:
    """Two sources, 1 to 3, with a cap and a stage: which rows each step learned from, over all ranks."""
    source = f'weight={{}}, max_repeats={{}}, files=["{FOLDER}/{{}}.jsonl"]'
    config = load_config(
        str(FOLDER / "run.toml"),
        *('run.name="mixed"', "batch.examples_per_step=7", "length.steps=12", "data.train.mix_by=documents"),
        f"data.train.sources.a={{{source.format(1, 2, 'seventeen')}}}",
        f"data.train.sources.b={{{source.format(3, 0, 'valid')}}}",
        "data.train.stages.more={from_step=4, weights={a=9.0}}",
    )
    seen: list[list[str]] = []

    class Seen:
        def after_update(self, report: Any, context: Any) -> None:
            seen.append([example.source for example in report.examples])

    run = TrainingPipeline(config=config, hooks={"seen": Seen()})
    run.run()
    shares = run.parts.world.gather(seen)
    if run.parts.world.is_first:
        log = (run.parts.setup.folder / "log.jsonl").read_text().splitlines()
        counts = [{key: value for key, value in json.loads(line).items() if "data/" in key} for line in log]
        steps = [sorted(name for share in shares for name in share[step]) for step in range(12)]
        FOUND["mixed"] = {"steps": steps, "counts": counts}


# -- one rank -----------------------------------------------------------------------------------------------------


def one_division(stage: int) -> None:
    """B03: the four tokens of two rows, in one micro-batch and in two."""
    train(f"one-{stage}", "pair", f"engine.zero_stage={stage}", hands=[[[0, 1]]])
    train(f"two-{stage}", "pair", f"engine.zero_stage={stage}", hands=[[[0], [1]]])


# -- two ranks ----------------------------------------------------------------------------------------------------


def a_row_a_rank() -> None:
    """B01."""
    train("row-a-rank", "scaled", hands=[[[0]], [[1]]])


def learning_rates() -> None:
    """B13: the first example of each rank in one micro-batch, ten updates."""
    train("rates", "pair", 'schedule.uses="ike_core:Schedule"', 'schedule.shape="linear"', "schedule.warmup_steps=2",
          "length.steps=10")  # fmt: skip


def evaluation(at_once: int) -> None:
    """B15."""
    valid = f'data.valid.v.files=["{FOLDER / "valid.jsonl"}"]'
    train(f"valid-{at_once}", "pair", valid, f"batch.examples_per_device={at_once}", "optimizer.peak_lr=0.0")


def seventeen() -> None:
    """B25."""
    train("seventeen", "seventeen", "batch.examples_per_step=17", "batch.examples_per_device=4")


def own_parts(stage: int) -> None:
    """Every Protocol by a part of the user's own."""
    keys = [
        'schedule.uses="case_parts:Shrinking"',
        'hooks.watcher.uses="case_parts:Watcher"',
        f'evaluate.echo={{uses="case_parts:Echo", files=["{FOLDER / "records.jsonl"}"]}}',
        'checkpoint.uses="ike_ckpt:SafetensorsStore"',
        *("length.steps=3", "cadence.evaluate={steps=2}", "cadence.save={steps=2}", "batch.tokens_per_device=64"),
    ]
    name = f"own-{stage}"
    run = train(name, "pair", f"engine.zero_stage={stage}", *keys)
    state = run.parts.hooks.hooks["watcher"].state()
    seen = run.parts.world.gather(state)
    again = Watcher()
    again.restore(json.loads(json.dumps(state)))
    FOUND[f"{name}-seen"] = [seen, again.state() == state]


# -- four ranks ---------------------------------------------------------------------------------------------------


def few_rows(stage: int) -> None:
    """B17: a row, and three rows, for four ranks that each have one or four micro-batches."""
    for rows in ("single", "three"):
        for micro_batches in (1, 4):
            # row n goes to rank n, in the n-th micro-batch: all others are filler
            hands = [[[rank] if rank % micro_batches == micro else [] for micro in range(micro_batches)]
                     for rank in range(4)]  # fmt: skip
            name = f"{rows}-{micro_batches}-{stage}"
            train(name, rows, f"engine.zero_stage={stage}", "batch.examples_per_step=4", "length.epochs=1.0",
                  hands=hands)  # fmt: skip


def refused(name: str, rows: str, *overrides: str) -> None:
    """B17, B99: what a rank of `ike-launch train` ends with, and the reason that it leaves."""
    os.environ[worker.FAILURE_FILE] = str(FOLDER / f"{name}-{RANK}.json")
    code = worker.main(["train", *layers(name, rows, *overrides)])
    (FOLDER / f"{name}-{RANK}.code").write_text(str(code))


def skewed_clocks() -> None:
    """B87: the clocks of the ranks differ by a second each; two saves."""

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Self:
            return super().now(tz) + timedelta(seconds=RANK)

    ike_ckpt.fileid.datetime = Skewed  # type: ignore[misc]
    keys = ['checkpoint.uses="ike_ckpt:SafetensorsStore"', "length.steps=2", "cadence.save={steps=1}"]
    run = train("skewed", "three", "batch.examples_per_step=4", *keys)
    FOUND["skewed-ids"] = run.parts.world.gather(run.file_id)


def infer() -> None:
    """An InferenceTask in [inference]; fewer examples a step than ranks are no fault, as it has no steps."""
    output = FOLDER / "echo.jsonl"
    keys = [f'inference={{uses="case_parts:Echo", files=["{FOLDER / "records.jsonl"}"], output="{output}"}}']
    InferencePipeline(config=load_config(*layers("infer", "three", *keys, "batch.examples_per_step=2"))).run()


def main() -> None:
    if RANKS < 4:
        mixed()
    if RANKS == 1:
        for stage in STAGES:
            one_division(stage)
    elif RANKS == 2:
        a_row_a_rank()
        learning_rates()
        for at_once in (1, 2, 3):
            evaluation(at_once)
        seventeen()
        for stage in (1, 3):
            own_parts(stage)
    else:
        for stage in (1, 3):
            few_rows(stage)
        refused("too-few-examples", "three", "batch.examples_per_step=2")
        refused("other-shape", "records", "batch.examples_per_step=4")
        skewed_clocks()
        infer()
    if RANK == 0:
        (FOLDER / f"found-{RANKS}.json").write_text(json.dumps(FOUND))


if __name__ == "__main__":
    main()
