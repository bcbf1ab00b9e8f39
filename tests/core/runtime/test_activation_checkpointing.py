"""Recomputed activations change memory, not gradients."""

import pytest
import torch
from torch import nn

from ike_core.errors import ConfigError
from ike_core.runtime.activation_checkpointing import enable_activation_checkpointing


def gradients(model: nn.Module, calls: list[int]) -> list[torch.Tensor]:
    model.zero_grad()
    handle = model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    ids = torch.arange(12)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    handle.remove()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_each_block_runs_twice_and_the_gradients_are_equal(tiny_llama) -> None:
    model, kept, recomputed = tiny_llama.double().train(), [], []
    expected = gradients(model, kept)
    enable_activation_checkpointing(model)
    found = gradients(model, recomputed)
    assert (len(kept), len(recomputed)) == (1, 2)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_no_cache_is_kept_in_training_and_generation_has_its_own(tiny_llama) -> None:
    enable_activation_checkpointing(tiny_llama)
    ids = torch.arange(12)[None]
    assert tiny_llama.train()(input_ids=ids).past_key_values is None
    assert tiny_llama.eval()(input_ids=ids).past_key_values is not None
    assert tiny_llama.config.use_cache is True  # it is saved, and whoever loads it generates


def test_the_backward_stops_above_frozen_blocks(tiny_llama) -> None:
    model = tiny_llama.train()
    enable_activation_checkpointing(model)
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)
    seen = []
    model.model.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    ids = torch.arange(12)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    assert not seen[0].requires_grad


def test_frozen_embeddings_are_no_trap(tiny_llama) -> None:
    """A reentrant checkpoint whose inputs need no gradient gives none to its weights."""
    model = tiny_llama.train()
    enable_activation_checkpointing(model)
    model.model.embed_tokens.weight.requires_grad_(False)
    ids = torch.arange(12)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0


def test_a_module_that_can_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"activation_checkpointing = true, but Linear"):
        enable_activation_checkpointing(nn.Linear(2, 2))


def test_a_model_of_transformers_that_can_not_is_refused(tiny_llama) -> None:
    tiny_llama.supports_gradient_checkpointing = False
    with pytest.raises(ConfigError, match=r"activation_checkpointing = true, but LlamaForCausalLM"):
        enable_activation_checkpointing(tiny_llama)
