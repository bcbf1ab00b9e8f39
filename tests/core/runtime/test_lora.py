"""`[model.lora]`: what an adapter computes against the papers' formulas, what it stands beside, and what is refused."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call

from ike_core.config.sections import LoraSection
from ike_core.errors import ConfigError

pytest.importorskip("peft")

from ike_core.runtime.lora import add_adapter, learning_share

IDS = torch.tensor([[5, 9, 2, 40, 33, 17, 8]])


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def stir(model: nn.Module) -> None:
    """Adapters as training leaves them: no factor is 0, and magnitudes are no norms any more."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in learned(model).values():
            parameter.add_(0.1 * torch.randn_like(parameter))


def by_hand(model: nn.Module, adapted: nn.Module, variant: str, scale: float) -> torch.Tensor:
    """Logits by the definition: every weight as one matrix, W + scale B A, and for DoRA its rows at length m."""
    weights = dict(model.named_parameters())
    found = dict(adapted.named_parameters())
    for name in [name for name in found if ".lora_A." in name]:
        layer = name.partition(".lora_A.")[0]
        weight = weights[f"{layer}.weight"].detach() + scale * found[f"{layer}.lora_B.default.weight"] @ found[name]
        if variant == "dora":  # the norm is a constant to the gradient: Liu et al. 2024, section 4.3
            length = weight.norm(dim=1, keepdim=True).detach()
            weight = found[f"{layer}.lora_magnitude_vector.default.weight"][:, None] * weight / length
        weights[f"{layer}.weight"] = weight
    return functional_call(model, weights, (IDS,)).logits


@pytest.mark.parametrize(
    ("variant", "scale"),
    [
        ("lora", 6.0 / 4),  # alpha / rank
        ("rslora", 6.0 / math.sqrt(4)),  # alpha / sqrt(rank)
        ("dora", 6.0 / 4),
    ],
)
def test_logits_and_gradients_are_those_of_the_formula(tiny_llama, variant: str, scale: float) -> None:
    import copy

    base = tiny_llama.double().requires_grad_(False)
    model = copy.deepcopy(base)
    add_adapter(model, LoraSection(rank=4, alpha=6.0, variant=variant))
    stir(model)
    expected = by_hand(base, model, variant, scale)
    parameters = learned(model)
    right = torch.autograd.grad(expected.square().mean(), list(parameters.values()))
    logits = model(IDS).logits
    torch.testing.assert_close(logits, expected, rtol=1e-6, atol=1e-7)  # RMSNorm computes in float32
    made = torch.autograd.grad(logits.square().mean(), list(parameters.values()))
    for name, mine, theirs in zip(parameters, made, right, strict=True):
        assert (mine - theirs).norm() <= 1e-5 * theirs.norm(), name
    assert len(parameters) == 2 * 7 * (3 if variant == "dora" else 2)  # two layers of seven linear ones


@pytest.mark.parametrize("variant", ["lora", "rslora", "dora"])
def test_a_new_adapter_changes_nothing(tiny_llama, variant: str) -> None:
    before = tiny_llama(IDS).logits
    add_adapter(tiny_llama, LoraSection(variant=variant))
    torch.testing.assert_close(tiny_llama(IDS).logits, before, rtol=0, atol=1e-6 if variant == "dora" else 0)
    assert type(tiny_llama).__name__ == "LlamaForCausalLM"


def test_only_adapters_learn_and_of_the_layers_named(tiny_llama) -> None:
    add_adapter(tiny_llama, LoraSection(rank=4, target_modules=("q_proj", "layers.1.mlp.up_proj")))
    layers = {name.partition(".lora_")[0] for name in learned(tiny_llama)}
    assert layers == {
        "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj",
    }  # fmt: skip
    # 2 x q_proj: 4 x 32 + 32 x 4; up_proj: 4 x 32 + 64 x 4
    assert learning_share(tiny_llama).startswith(f"{2 * 256 + 384} of ")


def test_modules_that_learn_whole_keep_their_name_and_their_tie(tiny_llama) -> None:
    add_adapter(tiny_llama, LoraSection(target_modules=("q_proj",), modules_to_save=("embed_tokens",)))
    assert "model.embed_tokens.weight" in learned(tiny_llama)
    assert tiny_llama.lm_head.weight is tiny_llama.model.embed_tokens.weight


def test_embeddings_with_new_rows_learn_whole(tiny_llama) -> None:
    tiny_llama.resize_token_embeddings(66, mean_resizing=False)
    add_adapter(tiny_llama, LoraSection(), has_grown=True)
    assert {name for name in learned(tiny_llama) if ".lora_" not in name} == {"model.embed_tokens.weight"}  # tied


def test_a_classifier_s_new_head_learns_whole(tiny_llama, llama_folder: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(llama_folder, num_labels=1)
    add_adapter(model, LoraSection())
    assert {name for name in learned(model) if ".lora_" not in name} == {"score.weight"}


def test_layers_with_transposed_weights_are_adapted_too() -> None:
    """GPT-2 keeps [inputs, outputs]."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2)).eval()
    before = model(IDS).logits
    add_adapter(model, LoraSection())
    torch.testing.assert_close(model(IDS).logits, before, rtol=0, atol=0)
    assert {name.partition(".lora_")[0].rpartition(".")[2] for name in learned(model)} == {"c_attn", "c_proj", "c_fc"}


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ({"target_modules": ("q_prj",)}, "target_modules = 'q_prj' is no module's name or last part; near: q_proj"),
        ({"target_modules": ("lm_head",)}, 'modules_to_save = ["lm_head"]'),
        ({"target_modules": ("embed_tokens",)}, 'modules_to_save = ["embed_tokens"]'),
        ({"target_modules": ("mlp",)}, "a LlamaMLP; adapters stand beside linear layers: down_proj, gate_proj, k_proj"),
        ({"modules_to_save": ("head",)}, "modules_to_save = 'head' is no module's"),
        ({"modules_to_save": ("q_proj",), "target_modules": ("q_proj",)}, "can't have an adapter"),
    ],
)
def test_names_that_can_not_be_adapted_are_refused(tiny_llama, lora, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        add_adapter(tiny_llama, LoraSection(**lora))
    assert said in str(refused.value)


def test_without_peft_the_error_says_what_to_install(tiny_llama, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"pip install 'ike-core\[lora\]'"):
        add_adapter(tiny_llama, LoraSection())


def test_recomputing_activations_changes_no_gradient(tiny_llama) -> None:
    """Inputs of a frozen block need no gradient; what adapters behind it learn does not depend on that."""
    from ike_core.runtime.activation_checkpointing import enable_activation_checkpointing

    add_adapter(tiny_llama, LoraSection(rank=2))
    stir(tiny_llama)
    tiny_llama.train()
    tiny_llama(IDS).logits.square().mean().backward()
    kept = {name: parameter.grad.clone() for name, parameter in learned(tiny_llama).items()}
    tiny_llama.zero_grad()
    enable_activation_checkpointing(tiny_llama)
    tiny_llama(IDS).logits.square().mean().backward()
    for name, parameter in learned(tiny_llama).items():
        torch.testing.assert_close(parameter.grad, kept[name], rtol=0, atol=0)
