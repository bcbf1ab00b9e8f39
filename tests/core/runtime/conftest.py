"""What only torch and transformers can run; ike-core installed without them skips this folder."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import numpy
    from torch import Tensor, nn
    from transformers import LlamaForCausalLM

collect_ignore_glob = ["test_*.py"] if find_spec("transformers") is None else []


@pytest.fixture
def tiny_llama() -> "LlamaForCausalLM":
    """Two layers, tied, seeded; 64 tokens, 32 wide, so that GGUF's blocks of 32 fit."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config)


@pytest.fixture
def llama_folder(tiny_llama: "LlamaForCausalLM", tmp_path: Path) -> Path:
    """The tiny Llama as transformers saves it."""
    tiny_llama.save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.fixture
def write_gguf() -> "Callable[..., dict[str, Tensor]]":
    """Writes a Llama as a GGUF file, as it is or packed to 8 bits; returns the weights that the file stands for."""
    pytest.importorskip("gguf")
    return _write_gguf


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}  # fmt: skip


def _llama_cpp(name: str, value: "numpy.ndarray") -> "tuple[str, numpy.ndarray]":
    """Name and order of rows as llama.cpp has them: its rotary pairs lie side by side, not half a head apart."""
    part = name.removesuffix(".weight")
    if part in GGUF_NAMES:
        return f"{GGUF_NAMES[part]}.weight", value
    _, _, layer, part = part.split(".", 3)
    if part in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = 4 if part == "self_attn.q_proj" else 2
        value = value.reshape(heads, 2, value.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(value.shape)
    return f"blk.{layer}.{GGUF_NAMES[part]}.weight", value


def _write_gguf(path: Path, model: "nn.Module", *, quantized: bool) -> "dict[str, Tensor]":
    """Writes the file; returns the weights that it stands for, under transformers' names."""
    import gguf
    import numpy
    import torch

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
        theirs, value = _llama_cpp(name, value)
        if quantized and value.ndim == 2:
            writer.add_tensor(theirs, gguf.quantize(numpy.ascontiguousarray(value), packed), raw_dtype=packed)
        else:
            writer.add_tensor(theirs, numpy.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept
