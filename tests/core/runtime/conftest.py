"""What only torch and transformers can run; ike-core installed without them skips this folder."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
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
