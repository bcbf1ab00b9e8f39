"""Where things lie: models, frozen models, batches, generators; and that two runs in a row leave nothing behind."""

import gc
from typing import Any

import attrs
import pytest
import torch
import torch.distributed as dist

from ike_core import Batch, Context, StepOutput
from ike_tasks import SFT


@attrs.frozen
class Probe:
    """SFT that notes where it finds things."""

    seen: list[torch.device] = attrs.field(factory=list, eq=False)

    def __call__(self, model: Any, batch: Batch, context: Context) -> StepOutput:
        reference = context.frozen["reference"].parameters()
        generators = [context.generator("noise"), *(context.noise(example, "noise") for example in context.examples)]
        self.seen.extend(thing.device for thing in (*batch.tensors.values(), *reference, *generators))
        return SFT()(model, batch, context)


def test_everything_that_a_step_touches_lies_on_the_device(new_pipeline, engine) -> None:
    probe = Probe()
    frozen = 'frozen.reference.uses="ike_core.runtime:PretrainedModel"'
    pipeline = new_pipeline(probe, *engine, frozen, "~checkpoint")
    pipeline.run()
    here = torch.device("cuda", torch.cuda.current_device())
    module = pipeline.parts.engine.model
    kept = [*module.parameters(), *module.buffers()]
    assert {*probe.seen, *(tensor.device for tensor in kept)} == {here}
    assert pipeline.parts.world.device == here


@pytest.mark.usefixtures("deepspeed")
def test_one_rank_has_the_devices_group_and_needs_none_of_the_host(new_pipeline) -> None:
    pipeline = new_pipeline(SFT(), "engine.zero_stage=1", "~checkpoint")
    pipeline.run()
    assert dist.get_backend() == "nccl"
    assert pipeline.parts.world.host_group is None
    assert pipeline.parts.world.sum([1.5]) == [1.5]


def test_batches_come_pinned_and_are_placed_without_waiting(new_pipeline) -> None:
    pipeline = new_pipeline(SFT(), 'engine.uses="ike_core.runtime:PlainTorch"', "~checkpoint")
    micro_batches = [micro for step in pipeline.parts.feed.steps(0, 3) for micro in step.micro_batches]
    for micro in micro_batches:
        assert all(tensor.is_pinned() for tensor in micro.batch.tensors.values() if tensor.numel())
        assert micro.batch["input_ids"].shape[1] % 128 == 0
    torch.cuda.set_sync_debug_mode("error")
    try:
        placed = [pipeline.parts.engine.place(micro.batch) for micro in micro_batches]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for micro, batch in zip(micro_batches, placed, strict=True):
        for name, tensor in batch.tensors.items():
            assert tensor.is_cuda
            assert torch.equal(tensor.cpu(), micro.batch[name])


def test_the_log_tells_the_devices_peak(new_pipeline, engine, log) -> None:
    pipeline = new_pipeline(SFT(), *engine, "~checkpoint")
    torch.cuda.reset_peak_memory_stats()
    pipeline.run()
    parameters = sum(tensor.nbytes for _, tensor in pipeline.parts.engine.weights())
    assert parameters < log(pipeline)[-1]["peak_memory_bytes"] <= torch.cuda.max_memory_allocated()


def allocated() -> int:
    gc.collect()
    gc.collect()  # what the first one let go of
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def test_a_run_leaves_no_memory_behind(new_pipeline, engine) -> None:
    def train() -> int:
        pipeline = new_pipeline(SFT(), *engine, 'optimizer.uses="ike_core.runtime:AdamW"', "~checkpoint")
        pipeline.run()
        return sum(tensor.nbytes for _, tensor in pipeline.parts.engine.weights())

    parameters = train()  # what stays once and for all: compiled kernels' workspaces, NCCL's buffers
    before = allocated()
    train()
    assert allocated() - before < 0.1 * parameters
