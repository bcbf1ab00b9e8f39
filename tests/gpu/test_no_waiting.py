"""From `place` to the end of `accumulate` the host never waits for the device: CUDA itself is asked."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import torch
from parts import Spread, TwoTerms

from ike_core import Batch, Comparison, Context, Mean, Segment
from ike_core.runtime.gradients import gradient_norm
from ike_tasks import SFT, target_logprobs

PLAIN = 'engine.uses="ike_core.runtime:PlainTorch"'
TREES = [{"prompt": [3 + row, 4, 5], "answers": [[6, 7 + row], [8], [9, 10, 11]]} for row in range(6)]


@attrs.frozen
class Trees:
    """{"prompt": [...], "answers": [[...], ...]}"""

    def process(self, record: Mapping[str, Any]) -> Iterable[Comparison]:
        yield Comparison(Segment.prompt(record["prompt"]), tuple(map(Segment.answer, record["answers"])))


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


CASES: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
    "SFT": (SFT(), (), {}),
    "SFT, activations recomputed": (SFT(), ("model.activation_checkpointing=true",), {}),
    "two terms": (TwoTerms(), (), {}),
    "two terms over trees": (TwoTerms(), (), {"processor": Trees, "data": TREES}),
    "a coupled loss": (Spread(), (), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_does_not_make_the_host_wait(case, new_pipeline, rows) -> None:
    """However they are ordered, 5 rows make micro-batches of 128 tokens: nothing is left to compile."""
    objective, overrides, given = CASES[case]
    pipeline = new_pipeline(objective, PLAIN, *overrides, "~checkpoint", **({"data": rows[:5]} | given))
    first, *others = list(pipeline.parts.feed.steps(0, 3))
    pipeline.train_step(first)  # compiles
    for step in others:
        with no_waiting():
            tally = pipeline.accumulate(step, pipeline.parts.objective)
        pipeline.update(step, tally)


def test_half_precision_does_not_make_the_host_wait(new_pipeline, llama, rows) -> None:
    """A bf16 model under the plain engine: the kernels of flat rows, without DeepSpeed's own waiting."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.bfloat16, attn_implementation="sdpa")
    pipeline = new_pipeline(SFT(), PLAIN, "~checkpoint", model=model, data=rows[:5])
    first, second = list(pipeline.parts.feed.steps(0, 2))
    pipeline.train_step(first)
    with no_waiting():
        pipeline.accumulate(second, pipeline.parts.objective)
    assert torch.isfinite(gradient_norm(model.parameters()))


@attrs.frozen
class Reads:
    def __call__(self, model: Any, batch: Batch, context: Context) -> Mean:
        logp_N = target_logprobs(model, batch)
        logp_N.sum().item()
        return Mean(-logp_N.sum(), batch.weights["tokens"])


def test_cuda_tells_when_an_objective_reads(new_pipeline, rows) -> None:
    pipeline = new_pipeline(Reads(), PLAIN, "~checkpoint", data=rows[:5])
    first, second = list(pipeline.parts.feed.steps(0, 2))
    pipeline.train_step(first)
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        pipeline.accumulate(second, pipeline.parts.objective)
