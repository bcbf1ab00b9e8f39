"""The two calls that objectives are made of, on whole models."""

import pytest
import torch
from torch import Tensor, nn
from transformers import CohereConfig, CohereForCausalLM, GraniteConfig, GraniteForCausalLM, PhiConfig, PhiForCausalLM

from ike_core.errors import TrainingError
from ike_core.examples import Comparison, Example, Segment
from ike_tasks import Packed, PaddedRows, ScoringModel, target_logprobs, weighted_logprob_sum
from ike_tasks.head import ScoringHead

COLLATES = (Packed(multiple_of=1), PaddedRows())
EXAMPLES = (
    Example((Segment.prompt([3, 4, 5]), Segment.answer([6, 7], weight=0.5))),
    Comparison(Segment.prompt([8, 9]), (Segment.answer([10, 11, 12]), Segment.answer([13]), Segment.answer([14, 15]))),
    Example((Segment.answer([16, 17, 18, 19]),), weight=2.0),
)
PATHS = (  # tokens, and which of them are targets: the same examples, written out
    ([3, 4, 5, 6, 7], [3, 4]),
    ([8, 9, 10, 11, 12], [2, 3, 4]),
    ([8, 9, 13], [2]),
    ([8, 9, 14, 15], [2, 3]),
    ([16, 17, 18, 19], [1, 2, 3]),
)
WEIGHTS = torch.tensor([0.5, 0.5, 1, 1, 1, 1, 1, 1, 2, 2, 2], dtype=torch.float64)


def by_full_logits(model: nn.Module) -> Tensor:
    """[N], each text in a forward of its own."""
    logp = []
    for tokens, places in PATHS:
        scores = model(input_ids=torch.tensor([tokens])).logits[0].log_softmax(1)
        logp += [scores[place - 1, tokens[place]] for place in places]
    return torch.stack(logp)


def losses(logp_N: Tensor) -> Tensor:
    return (-((1 - logp_N.exp()) ** 2) * logp_N).sum()


def assert_same_gradients(model: nn.Module, reference: nn.Module) -> None:
    for parameter, wanted in zip(model.parameters(), reference.parameters(), strict=True):
        got = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        right = torch.zeros_like(parameter) if wanted.grad is None else wanted.grad
        torch.testing.assert_close(got, right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("collate", COLLATES)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("call", ["any loss", "weighted sum"])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_gradients_are_those_of_full_logits(
    collate, family, tied, call, is_frozen, new_model, copy_of, vocabulary
) -> None:
    lm = new_model(family, tied=tied)
    reference = copy_of(lm)
    for each in (lm, reference):
        each.get_output_embeddings().requires_grad_(not is_frozen)
    model = collate.prepare(lm)
    assert model.is_lean
    batch = collate.collate(EXAMPLES, vocabulary)
    wanted = by_full_logits(reference)
    if call == "weighted sum":
        total, right = weighted_logprob_sum(model, batch), (wanted * WEIGHTS).sum()
    else:
        logp_N = target_logprobs(model, batch)
        assert logp_N.dtype == torch.float64
        torch.testing.assert_close(logp_N, wanted, rtol=0, atol=1e-10)
        total, right = losses(logp_N), losses(wanted)
    assert total.item() == pytest.approx(right.item(), abs=1e-10)
    total.backward()
    right.backward()
    assert_same_gradients(lm, reference)


def test_recomputed_blocks_give_the_same_gradients(new_model, copy_of, vocabulary) -> None:
    lm = new_model()
    reference = copy_of(lm)
    lm.activation_checkpointing_enable({"use_reentrant": False})
    model = Packed().prepare(lm).train()
    weighted_logprob_sum(model, Packed().collate(EXAMPLES, vocabulary)).backward()
    (by_full_logits(reference) * WEIGHTS).sum().backward()
    assert_same_gradients(lm, reference)


@pytest.mark.parametrize("call", [target_logprobs, weighted_logprob_sum])
@pytest.mark.parametrize("tied", [True, False])
def test_filler_has_a_graph_and_gradients_of_zero(call, tied, new_model, vocabulary) -> None:
    lm = new_model(tied=tied)
    score = call(Packed().prepare(lm), Packed().collate([], vocabulary)).sum()
    assert score.item() == 0.0
    score.backward()
    for name, parameter in lm.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max().item() == 0.0, name


_SHAPE = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (CohereForCausalLM, CohereConfig(**_SHAPE, logit_scale=0.3)),  # logits are scaled
        (GraniteForCausalLM, GraniteConfig(**_SHAPE, logits_scaling=5.0)),  # and divided
        (PhiForCausalLM, PhiConfig(**_SHAPE)),  # the head has a bias
    ],
)
def test_scale_and_bias_of_the_head_are_the_models_own(kind, config, copy_of, vocabulary) -> None:
    torch.manual_seed(0)
    lm = kind(config).double().eval()
    for parameter in lm.parameters():
        nn.init.normal_(parameter, std=0.3)
    reference = copy_of(lm)
    model = Packed().prepare(lm)
    assert model.is_lean
    logp_N = target_logprobs(model, Packed().collate(EXAMPLES, vocabulary))
    # norms and rotary angles are float32 as these models are shipped
    torch.testing.assert_close(logp_N, by_full_logits(reference), rtol=0, atol=1e-5)


def test_names_and_ordinary_calls_are_what_they_were(new_model, copy_of) -> None:
    lm = new_model()
    reference = copy_of(lm)
    model = Packed().prepare(lm)
    assert [name for name, _ in model.named_parameters()] == [f"lm.{name}" for name, _ in reference.named_parameters()]
    assert list(lm.state_dict()) == list(reference.state_dict())
    samples = {"input_ids": torch.tensor([[3, 4, 5, 6]]), "labels": torch.tensor([[-100, 4, 5, 6]])}
    assert torch.equal(model(**samples).loss, reference(**samples).loss)
    assert torch.equal(model(**samples).logits, reference(**samples).logits)


def test_a_second_wrapper_of_the_same_model_is_lean_too(new_model) -> None:
    lm = new_model()
    Packed().prepare(lm)
    assert Packed().prepare(lm).is_lean
    assert type(lm.get_output_embeddings()) is ScoringHead


class Own(nn.Module):
    """A model of someone's own: no config, no decoder, logits as a bare tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(64, 64, dtype=torch.float64)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.table(input_ids)


def test_a_model_of_ones_own_scores_by_its_full_logits(vocabulary) -> None:
    lm = Own()
    model = PaddedRows().prepare(lm)
    assert isinstance(model, ScoringModel)
    assert not model.is_lean
    batch = PaddedRows().collate([Example((Segment.prompt([5]), Segment.answer([6, 7], weight=0.5)))], vocabulary)
    table = lm.table.weight.log_softmax(1)
    right = torch.stack([table[5, 6], table[6, 7]])
    torch.testing.assert_close(target_logprobs(model, batch), right)
    torch.testing.assert_close(weighted_logprob_sum(model, batch), right.sum() * 0.5)


def test_a_model_that_was_not_prepared_says_what_to_do(new_model, vocabulary) -> None:
    with pytest.raises(TrainingError, match=r"LlamaForCausalLM was not prepared .*Packed\(\)\.prepare"):
        target_logprobs(new_model(), Packed().collate(EXAMPLES, vocabulary))
