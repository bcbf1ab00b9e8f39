"""What a step of TrainingPipeline costs beyond a bare DeepSpeed loop over the same ready-made batches.

python benchmarks/overhead.py [--steps 500] [--zero-stage 1]

One process, one rank, a 4-layer Llama of hidden size 64. The arms take turns step by step: the pipeline's, the bare
loop's, and the bare loop's again with an engine of its own (A/A: what the comparison itself can't tell apart). The
pipeline's collate looks up the very tensors that the bare loop uses; its prefetch thread is on. Ratios of medians.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ike_core import Context, Example, TrainingPipeline, Vocabulary, load_config
from ike_core.interfaces import StepReport

ROWS, EXAMPLES, LENGTH, VOCABULARY = 64, 8, 128, 1024
WARM_UP = 20


@attrs.frozen
class Numbered:
    """Rows that say only which ready-made row they are."""

    def process(self, record: Mapping[str, Any]) -> Iterator[Example]:
        yield Example.of([record["row"]] * LENGTH, [1.0] * LENGTH, fields={"row": record["row"]})


def new_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=172, num_hidden_layers=4, num_attention_heads=4,
        pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return LlamaForCausalLM(config)


class Batches:
    """Ready-made batches of rows, kept by the rows they are made of."""

    def __init__(self) -> None:
        self.rows = torch.randint(2, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
        self.made: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}

    def __call__(self, rows: tuple[int, ...]) -> dict[str, torch.Tensor]:
        if rows not in self.made:
            ids = self.rows[list(rows)]
            made = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
            pins = torch.cuda.is_available()  # both arms are given what a good data loader gives
            self.made[rows] = {name: tensor.pin_memory() if pins else tensor for name, tensor in made.items()}
        return self.made[rows]

    def collate(self, examples: Sequence[Example], vocabulary: Vocabulary) -> dict[str, torch.Tensor]:
        return self(tuple(example.fields["row"] for example in examples))


class BareLoop:
    """What one would write without ike."""

    def __init__(self, zero_stage: int) -> None:
        import deepspeed

        model = new_model()
        config = {
            "train_micro_batch_size_per_gpu": EXAMPLES, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "steps_per_print": 10**9, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": zero_stage},
        }  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def step(self, batch: dict[str, torch.Tensor]) -> None:
        placed = {name: tensor.to(self.engine.device, non_blocking=True) for name, tensor in batch.items()}
        loss = self.engine(**placed).loss
        self.engine.backward(loss)
        self.engine.step()


def now() -> float:
    """Seconds, once the device has done all that was asked of it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@attrs.define
class Interleave:
    """A hook: when the pipeline has done a step, the bare loops do the same one."""

    batches: Batches
    zero_stage: int
    loops: list[BareLoop] = attrs.field(factory=list)
    seconds: list[tuple[float, float, float]] = attrs.field(factory=list)
    left: float = 0.0

    def after_update(self, report: StepReport, context: Context) -> None:
        arrived = now()
        if not self.loops:
            self.loops = [BareLoop(self.zero_stage), BareLoop(self.zero_stage)]
        rows = tuple(example.fields["row"] for example in report.examples)
        order = (0, 1) if report.step % 2 else (1, 0)  # whoever runs second finds warmer caches
        taken = [0.0, 0.0]
        for arm in order:
            start = now()
            self.loops[arm].step(self.batches(rows))
            taken[arm] = now() - start
        if report.step > WARM_UP:
            self.seconds.append((arrived - self.left, *taken))
        self.left = now()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--zero-stage", type=int, default=1, choices=(0, 1, 2, 3))
    options = parser.parse_args()
    batches = Batches()
    interleave = Interleave(batches, options.zero_stage)
    with _run_file(options.steps + WARM_UP, options.zero_stage) as file:
        pipeline = TrainingPipeline(
            model=new_model(),
            train_forward_step_fn=lambda model, samples: model(**samples).loss,
            data_processor_classes=[Numbered],
            optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True),
            collate_fn=batches.collate,
            hooks={"interleave": interleave},
            config=load_config(file),
        )
        pipeline.run()
    ike, bare, again = (statistics.median(arm) for arm in zip(*interleave.seconds, strict=True))
    print(
        f"{len(interleave.seconds)} steps an arm, ZeRO-{options.zero_stage}, medians: "
        f"ike {ike * 1e3:.2f} ms, bare {bare * 1e3:.2f} ms, bare again {again * 1e3:.2f} ms\n"
        f"ike / bare {ike / bare:.4f}, A/A {again / bare:.4f}"
    )


@contextmanager
def _run_file(steps: int, zero_stage: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows.jsonl").write_text("".join(json.dumps({"row": row}) + "\n" for row in range(ROWS)))
        (folder / "run.toml").write_text(
            f"""
[data.train]
files = ["rows.jsonl"]
[engine]
zero_stage = {zero_stage}
[batch]
examples_per_step = {EXAMPLES}
[length]
steps = {steps}
[run]
root = "runs"
"""
        )
        yield folder / "run.toml"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
