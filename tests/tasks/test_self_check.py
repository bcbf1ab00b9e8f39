"""The start-up check finds every way in which a model can misread packed rows, and says which."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM
from transformers.utils import ModelOutput

from ike_core.errors import TrainingError
from ike_core.examples import Comparison, Example, Segment, preference_pair
from ike_core.interfaces import Collate
from ike_tasks import Packed, PaddedRows, target_logprobs

EXAMPLES = [
    Example((Segment.prompt([3, 4, 5]), Segment.answer([6, 7]))),
    preference_pair([8, 9], [10, 11, 12], [13]),
    Comparison(Segment.prompt([14]), (Segment.answer([15]), Segment.answer([16, 17]), Segment.answer([18]))),
    Example((Segment.prompt([20, 21]), Segment.answer([22, 23, 24]))),
]


@pytest.fixture(autouse=True)
def _no_gradient() -> Iterator[None]:
    with torch.no_grad():
        yield


def check(model, vocabulary, packing="auto", examples=EXAMPLES) -> tuple[Collate, str]:
    return Packed().check(model.eval(), examples, vocabulary, packing=packing)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("packing", ["auto", "required"])
def test_a_model_that_reads_packed_rows_keeps_them(family, dtype, packing, new_model, vocabulary) -> None:
    model = Packed().prepare(new_model(family).to(dtype))
    assert check(model, vocabulary, packing) == (Packed(), "")
    assert model.is_lean


def test_one_example_is_enough(new_model, vocabulary) -> None:
    model = Packed().prepare(new_model())
    assert check(model, vocabulary, examples=EXAMPLES[:1]) == (Packed(), "")
    assert check(model, vocabulary, examples=[]) == (Packed(), "")


def test_packing_off_pads_at_once(new_model, vocabulary) -> None:
    assert check(Packed().prepare(new_model()), vocabulary, "off") == (PaddedRows(), "")


def misread(model, vocabulary) -> str:
    """Why rows are padded; and packing = 'required' says the same in an error."""
    collate, said = check(model, vocabulary)
    assert collate == PaddedRows()
    with pytest.raises(TrainingError, match=r"batch\.packing = 'required'") as error:
        check(model, vocabulary, "required")
    why = said.removeprefix("rows are padded, not packed: ")
    assert why in str(error.value)
    return why


def test_another_attention_is_named(new_model, vocabulary) -> None:
    lm = new_model()
    lm.set_attn_implementation("eager")
    assert misread(Packed().prepare(lm), vocabulary) == "LlamaForCausalLM uses eager attention"


def test_layers_that_carry_a_state_are_named(new_model, vocabulary) -> None:
    lm = new_model()
    lm.config.layer_types = ["full_attention", "linear_attention"]
    assert misread(Packed().prepare(lm), vocabulary) == "LlamaForCausalLM has layers of linear_attention"


def test_capped_scores_are_padded_and_their_capped_logits_still_lean(vocabulary) -> None:
    shape = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 4}
    config = Gemma2Config(num_attention_heads=4, num_key_value_heads=2, final_logit_softcapping=0.5, **shape)
    model = Packed().prepare(Gemma2ForCausalLM(config))
    assert misread(model, vocabulary) == "Gemma2ForCausalLM uses eager attention"
    assert model.is_lean


def test_a_layer_that_is_not_told_is_counted(new_model, vocabulary) -> None:
    lm = new_model()
    attention_module = lm.model.layers[1].self_attn
    whole = attention_module.forward

    def deaf(*args: object, layout: object = None, **others: object) -> object:
        return whole(*args, **others)

    attention_module.forward = deaf
    assert misread(Packed().prepare(lm), vocabulary) == "1 of 2 layers were told where documents end"


def test_a_window_shorter_than_a_document_is_named(new_model, vocabulary) -> None:
    lm = new_model()
    attention_module = lm.model.layers[0].self_attn
    whole = attention_module.forward
    attention_module.forward = lambda *args, **kwargs: whole(*args, sliding_window=4, **kwargs)
    assert "window of 4 tokens is shorter than a document of 5" in misread(Packed().prepare(lm), vocabulary)


def test_what_no_layer_tells_the_numbers_do(new_model, vocabulary) -> None:
    lm = new_model()
    # each token also reads the one before it, whichever document that belongs to
    lm.model.layers[0].register_forward_hook(lambda module, inputs, hidden: hidden + hidden.roll(1, dims=1).tril(-1))
    model = Packed().prepare(lm)
    assert misread(model, vocabulary).startswith("packed rows are off by ")
    assert check(model, vocabulary, examples=EXAMPLES[:1])[0] == PaddedRows()  # one alone is put beside itself


def test_a_head_that_does_more_than_its_config_says_gives_way_to_full_logits(new_model, vocabulary) -> None:
    lm = new_model()

    def halve(module: nn.Module, inputs: object, output: ModelOutput) -> ModelOutput:
        output.logits = output.logits / 2
        return output

    lm.register_forward_hook(halve)
    for packing in ("auto", "off"):
        model = Packed().prepare(lm)
        _, said = check(model, vocabulary, packing)
        assert said.startswith("log-probabilities come from full logits: the lean head's are off by ")
        assert not model.is_lean
    batch = Packed().collate(EXAMPLES[:1], vocabulary)
    right = (model(input_ids=torch.tensor([[3, 4, 5, 6, 7]])).logits[0]).log_softmax(1)
    torch.testing.assert_close(target_logprobs(model, batch), torch.stack([right[2, 6], right[3, 7]]))


def test_rows_that_see_each_other_stop_the_run(new_model, vocabulary) -> None:
    lm = new_model()
    lm.model.layers[0].register_forward_hook(lambda module, inputs, hidden: hidden + hidden.mean(0, keepdim=True))
    with pytest.raises(TrainingError, match="padded rows give log-probabilities that are off"):
        check(Packed().prepare(lm), vocabulary)


def test_numbers_that_are_none_are_no_agreement(new_model, vocabulary) -> None:
    lm = new_model()
    lm.model.norm.weight.fill_(torch.nan)
    with pytest.raises(TrainingError, match="off by nan"):
        check(Packed().prepare(lm), vocabulary)


def test_what_dropout_would_change_is_left_to_the_caller(new_model, vocabulary) -> None:
    """The caller puts the model into evaluation mode; the check asks for no gradient and leaves none."""
    model = Packed().prepare(new_model())
    check(model, vocabulary)
    assert all(parameter.grad is None for parameter in model.parameters())
