"""NEFTune's noise: of each document's own length, drawn for the example, the same in every cut, while training."""

import math
from collections.abc import Sequence

import attrs
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ike_core.batch import Vocabulary
from ike_core.context import Context
from ike_core.errors import TrainingError
from ike_core.examples import AnyExample, Comparison, Example, Segment
from ike_tasks import SFT, Packed, PaddedRows

ALPHA = 5.0
SOFT = SFT(neftune_alpha=ALPHA)
COLLATES = [Packed(multiple_of=8), PaddedRows()]


def new_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed & (2**63 - 1))


def context_of(examples: Sequence[AnyExample], *, step: int = 0, training: bool = True) -> Context:
    return Context(step=step, steps=9, seed=3, training=training, examples=tuple(examples), new_generator=new_generator)


def example(index: int, *tokens: int) -> Example:
    return Example((Segment.prompt(tokens[:1]), Segment.answer(tokens[1:])), index=index)


EXAMPLES = (example(0, 3, 4, 5, 6, 7), example(1, 8, 9), example(2, 10, 11, 12, 13))
TREE = Comparison(Segment.prompt([3, 4]), (Segment.answer([5]), Segment.answer([6, 7])), index=3)


def noise_by_hand(row: AnyExample, size: int) -> Tensor:
    """Algorithm 1 of the paper for one document, [L, D], from the example's own generator."""
    uniform = torch.empty(len(row), size, dtype=torch.float64)
    bound = ALPHA / math.sqrt(row.tree.longest_path * size)
    return uniform.uniform_(-bound, bound, generator=context_of([row]).noise(row, "neftune"))


def loss(
    model: nn.Module, collate: Packed | PaddedRows, rows: Sequence[AnyExample], vocabulary: Vocabulary, **said: int
) -> Tensor:
    output = SOFT(model, collate.collate(rows, vocabulary), context_of(rows, **said))
    ((_, mean),) = output.terms
    return mean.total


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("collate", COLLATES)
def test_the_loss_is_that_of_noisy_embeddings_of_each_document_alone(
    family, collate, new_model, copy_of, vocabulary
) -> None:
    lm = new_model(family)
    reference = copy_of(lm)
    wanted = torch.zeros((), dtype=torch.float64)
    for row in EXAMPLES:
        tokens = torch.tensor(row.trunk.tokens)
        embedded = reference.get_input_embeddings()(tokens)
        logits = reference(inputs_embeds=(embedded + noise_by_hand(row, embedded.shape[1]))[None]).logits[0]
        wanted = wanted + cross_entropy(logits[:-1], tokens[1:], reduction="sum")
    total = loss(collate.prepare(lm), collate, EXAMPLES, vocabulary)
    assert total.item() == pytest.approx(wanted.item(), abs=1e-10)
    weight = lm.get_input_embeddings().weight
    (got,) = torch.autograd.grad(total, weight)
    (right,) = torch.autograd.grad(wanted, reference.get_input_embeddings().weight)
    torch.testing.assert_close(got, right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("collate", COLLATES)
def test_no_cut_changes_it_and_every_step_draws_anew(collate, new_model, vocabulary) -> None:
    model = collate.prepare(new_model())
    rows = (*EXAMPLES, TREE)
    whole = loss(model, collate, rows, vocabulary)
    cut = [loss(model, collate, part, vocabulary) for part in (rows[2:3], rows[3:] + rows[:1], (), rows[1:2])]
    assert sum(part.item() for part in cut) == pytest.approx(whole.item(), abs=1e-10)
    assert loss(model, collate, rows, vocabulary).item() == whole.item()
    assert abs(loss(model, collate, rows, vocabulary, step=1).item() - whole.item()) > 1e-3


def test_the_branches_of_a_packed_tree_see_the_noise_of_padded_paths(new_model, copy_of, vocabulary) -> None:
    lm = new_model()
    padded = PaddedRows().prepare(copy_of(lm))
    packed = loss(Packed().prepare(lm), Packed(), [TREE], vocabulary)
    assert packed.item() == pytest.approx(loss(padded, PaddedRows(), [TREE], vocabulary).item(), abs=1e-10)


def test_evaluation_is_without_noise_and_training_leaves_no_trace(new_model, vocabulary) -> None:
    model, batch = Packed().prepare(new_model()), Packed().collate(EXAMPLES, vocabulary)
    bare = SFT()(model, batch, context_of(EXAMPLES)).loss.total
    noisy = SOFT(model, batch, context_of(EXAMPLES)).loss.total
    quiet = SOFT(model, batch, context_of(EXAMPLES, training=False)).loss.total
    assert abs(noisy.item() - bare.item()) > 1e-3
    assert quiet.item() == bare.item()
    assert not model.lm.get_input_embeddings()._forward_hooks


def test_a_context_that_names_no_examples_is_an_error_not_silence(new_model, vocabulary) -> None:
    model, batch = Packed().prepare(new_model()), Packed().collate(EXAMPLES, vocabulary)
    with pytest.raises(TrainingError, match=r"Context\(examples=\.\.\.\)"):
        SOFT(model, batch, attrs.evolve(context_of(EXAMPLES), examples=()))


def test_a_model_without_an_embedding_to_be_found_is_refused(vocabulary) -> None:
    model = PaddedRows().prepare(nn.Linear(2, 2))
    with pytest.raises(TrainingError, match="Linear is not a model of transformers"):
        SOFT(model, PaddedRows().collate(EXAMPLES, vocabulary), context_of(EXAMPLES))
