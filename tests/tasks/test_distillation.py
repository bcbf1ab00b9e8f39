"""Distillation through models: against full logits of every text alone, in float64."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ike_core.context import Context
from ike_core.errors import ConfigError, TrainingError
from ike_core.examples import Example, Segment
from ike_tasks import Distillation, Packed, PaddedRows

ROWS = (([3, 4], [5, 6, 7]), ([8], [9]), ([10, 11, 12], [13, 14]))
EXAMPLES = tuple(Example((Segment.prompt(prompt), Segment.answer(answer))) for prompt, answer in ROWS)


@pytest.fixture
def teachers(copy_of: Any) -> dict[str, nn.Module]:
    """A wider Llama and a GPT-2 of the student's vocabulary."""
    torch.manual_seed(7)
    wide = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=0,
        )
    )  # fmt: skip
    other = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=4, n_positions=64))
    for parameter in (*wide.parameters(), *other.parameters()):
        nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    return {name: copy_of(lm.double()).requires_grad_(False).eval() for name, lm in (("wide", wide), ("other", other))}


def context_of(frozen: dict[str, nn.Module]) -> Context:
    return Context(step=0, steps=1, frozen=frozen)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    m = 0.25 * p + 0.75 * q
    return 0.25 * kl_div(m.log(), p, reduction="sum") + 0.75 * kl_div(m.log(), q, reduction="sum")


@pytest.mark.parametrize("collate", [Packed(multiple_of=8), PaddedRows()])
def test_two_teachers_and_the_rows_pull_as_written(collate, new_model, copy_of, teachers, vocabulary) -> None:
    student = new_model()
    reference = copy_of(student)
    divergences = dict.fromkeys(teachers, torch.zeros((), dtype=torch.float64))
    entropy = torch.zeros((), dtype=torch.float64)
    for prompt, answer in ROWS:
        text, scored = torch.tensor([prompt + answer]), slice(len(prompt) - 1, -1)
        logits = reference(input_ids=text).logits[0, scored]
        entropy = entropy + cross_entropy(logits, torch.tensor(answer), reduction="sum")
        for name, teacher in teachers.items():
            p = (teacher(input_ids=text).logits[0, scored] / 2.0).softmax(1)
            divergences[name] = divergences[name] + 4 * jensen_shannon(p, (logits / 2.0).softmax(1))
    right = 0.7 * divergences["wide"] + 0.2 * divergences["other"] + 0.5 * entropy

    objective = Distillation(
        teachers={"wide": 0.7, "other": 0.2}, divergence="jensen_shannon", beta=0.25, temperature=2.0, sft_weight=0.5
    )
    frozen = {name: collate.prepare(teacher) for name, teacher in teachers.items()}
    output = objective(collate.prepare(student), collate.collate(EXAMPLES, vocabulary), context_of(frozen))
    ((_, mean),) = output.terms
    assert (mean.weight, mean.per) == (6.0, "tokens")
    assert mean.total.item() == pytest.approx(right.item(), abs=1e-10)
    assert {name: part.total.item() for name, part in output.metrics.items()} == pytest.approx(
        {f"divergence/{name}": value.item() for name, value in divergences.items()} | {"cross_entropy": entropy.item()}
    )
    mean.total.backward()
    right.backward()
    for (name, got), wanted in zip(student.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad, rtol=0, atol=1e-10, msg=name)
    assert all(parameter.grad is None for teacher in teachers.values() for parameter in teacher.parameters())


@pytest.mark.parametrize("collate", [Packed(), PaddedRows()])
def test_filler_calls_the_models_and_says_nothing(collate, new_model, teachers, vocabulary) -> None:
    student = new_model()
    frozen = {"teacher": collate.prepare(teachers["wide"])}
    model = collate.prepare(student)
    output = Distillation(sft_weight=1.0, top_k=4)(model, collate.collate((), vocabulary), context_of(frozen))
    output.loss.total.backward()
    assert output.loss.total.item() == 0.0
    assert all(parameter.grad.count_nonzero() == 0 for parameter in student.parameters())


def test_a_teacher_that_no_table_names_is_an_error_with_those_there_are(new_model, teachers, vocabulary) -> None:
    model, batch = Packed().prepare(new_model()), Packed().collate(EXAMPLES, vocabulary)
    with pytest.raises(ConfigError, match=r"names 'teacher', and there is \[frozen\.wide\], \[frozen\.other\]"):
        Distillation()(model, batch, context_of(teachers))
    with pytest.raises(ConfigError, match=r"no \[frozen\] table"):
        Distillation()(model, batch, context_of({}))


@pytest.mark.parametrize("teachers", [{}, {"wide": 0.0}])
def test_teachers_need_weights(teachers) -> None:
    with pytest.raises(ValueError, match="at least one, each with a weight above 0"):
        Distillation(teachers=teachers)


def test_a_teacher_that_can_t_read_packed_rows_is_refused(new_model, teachers, vocabulary) -> None:
    """Its own start-up check is the student's: it would read on across documents."""
    blind = Packed().prepare(teachers["wide"])
    blind.packing_refusal = "LlamaForCausalLM uses eager attention"
    batch = Packed().collate(EXAMPLES, vocabulary)
    with pytest.raises(TrainingError, match=r"uses eager attention; set batch\.packing = 'off'"):
        Distillation()(Packed().prepare(new_model()), batch, context_of({"teacher": blind}))


def test_an_objective_of_one_s_own_learns_from_two_teachers(new_model, teachers, vocabulary, monkeypatch) -> None:
    """What `Distillation` does, said in other words: the same number."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    from my_lab.two_teachers import TwoTeachers

    frozen = {"large": Packed().prepare(teachers["wide"]), "careful": Packed().prepare(teachers["other"])}
    model, batch = Packed().prepare(new_model()), Packed().collate(EXAMPLES, vocabulary)
    own = TwoTeachers(trust=0.5)(model, batch, context_of(frozen))
    parts = [
        Distillation(teachers={name: 0.5}, divergence=kind, temperature=temperature)(model, batch, context_of(frozen))
        for name, kind, temperature in (("large", "forward_kl", 2.0), ("careful", "reverse_kl", 1.0))
    ]
    rows = Distillation(teachers={"large": 1.0}, sft_weight=0.1)(model, batch, context_of(frozen))
    wanted = sum(part.loss.total.item() for part in parts) + 0.1 * rows.metrics["cross_entropy"].total.item()
    assert own.loss.total.item() == pytest.approx(wanted)
