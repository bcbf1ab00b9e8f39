"""Tiny models of six families, in float64, and what a text alone says: the reference of every test here."""

import copy
from collections.abc import Callable, Sequence
from types import MethodType

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ike_core.batch import Vocabulary

VOCABULARY = Vocabulary(size=64, pad=0, bos=1, eos=2)
_LLAMA_SHAPE = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

_FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "gpt_neox": (GPTNeoXConfig, GPTNeoXForCausalLM),
}
"""Configured by the same names."""

NewModel = Callable[..., PreTrainedModel]


@pytest.fixture
def vocabulary() -> Vocabulary:
    return VOCABULARY


@pytest.fixture
def new_model() -> NewModel:
    """name, tied -> a model with sdpa attention in float64, its weights wide enough that every token matters."""

    def build(name: str = "llama", *, tied: bool = True) -> PreTrainedModel:
        torch.manual_seed(0)
        if name == "gpt2":
            config = GPT2Config(
                vocab_size=64, n_embd=16, n_layer=2, n_head=4, n_positions=64, tie_word_embeddings=tied,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            )  # fmt: skip
            model: PreTrainedModel = GPT2LMHeadModel(config)
        else:
            new_config, new_lm = _FAMILIES[name]
            model = new_lm(new_config(**_LLAMA_SHAPE, tie_word_embeddings=tied))
        for parameter in model.parameters():
            nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
        return lifted(model.double())

    return build


def lifted(model: PreTrainedModel) -> PreTrainedModel:
    """RMSNorm in the model's own dtype: as shipped it computes in float32, which would hide what is tested."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = MethodType(_rms_norm, module)
    return model


def _rms_norm(self: nn.Module, hidden: Tensor) -> Tensor:
    return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


@pytest.fixture
def copy_of() -> Callable[[PreTrainedModel], PreTrainedModel]:
    """The same weights, still with sdpa attention and the output layer it came with."""

    def make(model: PreTrainedModel) -> PreTrainedModel:
        return lifted(copy.deepcopy(model))

    return make


@pytest.fixture
def logits_alone() -> Callable[[PreTrainedModel, Sequence[int]], Tensor]:
    """[T, V] of one text, read by the model as transformers calls it."""

    def read(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
        logits: Tensor = model(input_ids=torch.tensor([list(tokens)])).logits[0]
        return logits

    return read


class NoWaiting(TorchDispatchMode):
    """Refuses what makes a host wait for its device: reading a number, shapes that depend on values."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:
        assert func.overloadpacket.__name__ not in self.FORBIDDEN, f"{func} waits for the device"
        indices = args[1] if func.overloadpacket.__name__ in ("index", "index_put_") else ()
        assert not any(index is not None and index.dtype == torch.bool for index in indices), "a mask as an index"
        return func(*args, **(kwargs or {}))


@pytest.fixture
def no_waiting() -> type[NoWaiting]:
    """A context in which nothing may wait for the device."""
    return NoWaiting
