"""Patterns say which parameters learn; one that says nothing is an error."""

import pytest
import torch

from ike_core.errors import ConfigError
from ike_core.runtime.freezing import apply_freeze, freeze_others, frozen


def learning(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_freeze_stops_what_it_is_found_in_and_train_all_else(tiny_llama) -> None:
    every = learning(tiny_llama)
    first = {name for name in every if name.startswith("model.layers.0.")}
    apply_freeze(tiny_llama, freeze=[r"layers\.0\."], train=[])
    assert learning(tiny_llama) == every - first
    apply_freeze(tiny_llama, freeze=[], train=[r"layers\.0\."])
    assert learning(tiny_llama) == first


def test_without_patterns_a_model_stays_as_it_was_built(tiny_llama) -> None:
    tiny_llama.model.norm.weight.requires_grad_(False)
    before = learning(tiny_llama)
    apply_freeze(tiny_llama, freeze=[], train=[])
    assert "model.norm.weight" not in before
    assert learning(tiny_llama) == before


def test_what_the_optimizer_does_not_hold_does_not_learn(tiny_llama) -> None:
    mine = {"model.norm.weight", "model.layers.0.self_attn.q_proj.weight"}
    held = [parameter for name, parameter in tiny_llama.named_parameters() if name in mine]
    freeze_others(tiny_llama, torch.optim.SGD(held))
    assert learning(tiny_llama) == mine
    tiny_llama.requires_grad_(False)
    with pytest.raises(ConfigError, match="holds no parameter that learns"):
        freeze_others(tiny_llama, torch.optim.SGD(held))


def test_several_patterns_add_up(tiny_llama) -> None:
    apply_freeze(tiny_llama, freeze=[], train=["q_proj", r"^model\.norm"])
    assert learning(tiny_llama) == {
        "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight", "model.norm.weight"
    }  # fmt: skip


def test_a_tied_parameter_answers_to_all_its_names(tiny_llama) -> None:
    apply_freeze(tiny_llama, freeze=["lm_head"], train=[])
    assert not tiny_llama.model.embed_tokens.weight.requires_grad
    apply_freeze(tiny_llama, freeze=[], train=["lm_head"])
    assert learning(tiny_llama) == {"model.embed_tokens.weight"}


@pytest.mark.parametrize("key", ["freeze", "train"])
def test_a_pattern_that_is_nowhere_names_the_nearest(tiny_llama, key) -> None:
    patterns = {"freeze": [], "train": [], key: ["model.embed_token.weigth"]}
    with pytest.raises(
        ConfigError, match=rf"model\.{key} = 'model.embed_token.weigth'.*near: model\.embed_tokens\.weight"
    ):
        apply_freeze(tiny_llama, **patterns)


def test_nothing_left_to_learn_both_lists_and_a_broken_pattern_are_refused(tiny_llama) -> None:
    with pytest.raises(ConfigError, match="leaves nothing to learn"):
        apply_freeze(tiny_llama, freeze=["."], train=[])
    with pytest.raises(ConfigError, match="alternatives"):
        apply_freeze(tiny_llama, freeze=["norm"], train=["mlp"])
    with pytest.raises(ConfigError, match=r"'\(' is no regular expression"):
        apply_freeze(tiny_llama, freeze=["("], train=[])


def test_a_frozen_model_has_no_gradients_and_no_dropout(tiny_llama) -> None:
    model = frozen(tiny_llama.train())
    assert model is tiny_llama
    assert not model.training
    assert learning(model) == set()
