"""A folder saved by a GPU run holds the weights that it trained, and transformers reads it on the CPU."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ike_tasks import SFT


def trained_and_read(pipeline: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    pipeline.run()
    (folder,) = pipeline.parts.setup.folder.glob("step-*/model")
    trained = {name: tensor.cpu().clone() for name, tensor in pipeline.parts.engine.weights()}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return trained, {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_what_is_read_back_is_what_was_trained(new_pipeline, engine) -> None:
    trained, read = trained_and_read(new_pipeline(SFT(), *engine))
    assert trained.keys() == read.keys()
    for name, tensor in trained.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(read[name], tensor), name


def test_a_bf16_run_is_read_back_in_bf16(new_pipeline, deepspeed) -> None:
    trained, read = trained_and_read(new_pipeline(SFT(), "engine.zero_stage=3", 'engine.precision="bf16"'))
    for name, tensor in trained.items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(read[name], tensor), name
