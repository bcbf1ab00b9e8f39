"""Embeddings that grow for added tokens: what was there stays bit for bit, what is new is its mean."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM, PreTrainedModel

from ike_core import ConfigError, Vocabulary
from ike_core.runtime.growing import grow_embeddings
from ike_core.runtime.modules import saved_model

SMALL = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
GROWN = Vocabulary(size=14, pad=0, added=3)


def llama(*, tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=tied))


def phi() -> PhiForCausalLM:
    """Its head has a bias, which starts as zeros."""
    torch.manual_seed(0)
    model = PhiForCausalLM(PhiConfig(**SMALL))
    nn.init.normal_(model.lm_head.bias)
    return model


@pytest.mark.parametrize("model", [llama(tied=True), llama(tied=False), phi()], ids=["tied", "untied", "bias"])
def test_new_rows_are_the_mean_of_the_old_which_stay(model: PreTrainedModel) -> None:
    ids = torch.arange(11)[None]
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before, parameters = model(ids).logits, set(model.parameters())
    assert grow_embeddings(model, GROWN) == (11, 14)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor[: len(old[name])], old[name]), name
        if len(tensor) == 14:
            expected = old[name].double().mean(0).float()
            assert all(torch.equal(row, expected) for row in tensor[11:]), name
    assert {name for name, tensor in model.state_dict().items() if len(tensor) == 14} == {
        name for name, tensor in old.items() if len(tensor) == 11
    }
    logits = model(ids).logits
    assert logits.shape[-1] == model.config.vocab_size == 14
    assert torch.allclose(logits[..., :11], before, atol=1e-6)
    assert torch.allclose(logits[..., 11:], before.mean(-1, keepdim=True), atol=1e-6)
    assert model.get_input_embeddings().weight in parameters  # an optimizer that was given holds it


@pytest.mark.parametrize("vocabulary", [None, Vocabulary(size=14, pad=0), Vocabulary(size=11, pad=0, added=2)])
def test_a_model_with_room_and_a_tokenizer_that_nothing_was_added_to_change_nothing(vocabulary) -> None:
    model = llama(tied=True)
    assert grow_embeddings(model, vocabulary) is None
    assert model.config.vocab_size == 11


def test_what_is_saved_ends_an_answer_where_the_tokenizer_does() -> None:
    model = llama(tied=True)
    model.generation_config.eos_token_id = 2

    def ends(eos: int | None) -> Any:
        tokenizer: Any = SimpleNamespace(vocabulary=Vocabulary(size=14, pad=0, eos=eos))
        return saved_model(model, None, tokenizer).generation_config.eos_token_id

    assert [ends(2), ends(None), ends(13)] == [2, 2, [2, 13]]
    assert model.generation_config.eos_token_id == 2


def test_a_model_of_ones_own_must_have_the_room() -> None:
    own = nn.Linear(1, 1)
    assert grow_embeddings(own, GROWN) is None  # it doesn't tell
    own.config = SimpleNamespace(vocab_size=11)
    with pytest.raises(ConfigError, match=r"tokenizer has 14 tokens with them, and the model \(Linear\) 11 embeddings"):
        grow_embeddings(own, GROWN)
