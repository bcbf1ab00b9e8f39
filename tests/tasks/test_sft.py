"""SFT against torch's cross-entropy, and without waiting for the device."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ike_core.context import Context
from ike_core.examples import Example, Segment, preference_pair
from ike_core.step_output import StepOutput
from ike_tasks import SFT, Packed, PaddedRows

CONTEXT = Context(step=0, steps=1)
ROWS = (([3, 4], [5, 6, 7]), ([8], [9]), ([10, 11, 12], [13, 14]))


def examples() -> list[Example]:
    return [Example((Segment.prompt(prompt), Segment.answer(answer))) for prompt, answer in ROWS]


@pytest.mark.parametrize("collate", [Packed(multiple_of=1), PaddedRows()])
def test_the_loss_is_the_cross_entropy_of_the_answers(collate, new_model, copy_of, logits_alone, vocabulary) -> None:
    lm = new_model()
    reference = copy_of(lm)
    wanted = sum(
        cross_entropy(
            logits_alone(reference, prompt + answer)[len(prompt) - 1 : -1], torch.tensor(answer), reduction="sum"
        )
        for prompt, answer in ROWS
    )
    output = SFT()(collate.prepare(lm), collate.collate(examples(), vocabulary), CONTEXT)
    assert isinstance(output, StepOutput)
    ((coefficient, mean),) = output.terms
    assert (coefficient, mean.weight, mean.per) == (1.0, 6.0, "tokens")
    assert mean.total.item() == pytest.approx(wanted.item(), abs=1e-10)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_nothing_in_a_step_waits_for_the_device(family, new_model, vocabulary, no_waiting) -> None:
    model = Packed().prepare(new_model(family))
    pair = preference_pair([20, 21], [22, 23], [24])
    batch = Packed().collate([*examples(), pair], vocabulary)
    with no_waiting():
        output = SFT()(model, batch, CONTEXT)
        output.terms[0][1].total.backward()


def test_the_watch_sees_a_host_that_waits(no_waiting) -> None:
    with no_waiting(), pytest.raises(AssertionError, match="waits"):
        torch.ones(1).item()


@pytest.mark.parametrize("collate", [Packed(multiple_of=1), PaddedRows()])
def test_every_option_weighs_tokens_by_their_own_and_their_row_s_weight(
    collate, new_model, copy_of, logits_alone, vocabulary
) -> None:
    """Options together; the first row counts twice, its tokens 0.5 and 1.5."""
    weighted = Example((Segment.prompt([3, 4]), Segment([5, 6], [0.5, 1.5])), weight=2.0)
    lm = new_model()
    logits = torch.cat([logits_alone(copy_of(lm), [3, 4, 5, 6])[1:3], logits_alone(copy_of(lm), [8, 9])[:1]])
    targets, weights = torch.tensor([5, 6, 9]), torch.tensor([1.0, 3.0, 1.0])
    p = logits.softmax(1)[torch.arange(3), targets].detach()
    smoothed = cross_entropy(logits, targets, label_smoothing=0.1, reduction="none")
    right = ((p * smoothed + 0.01 * logits.logsumexp(1) ** 2) * weights).sum()

    objective = SFT(label_smoothing=0.1, z_loss=0.01, dft=True)
    batch = collate.collate([weighted, Example((Segment.prompt([8]), Segment.answer([9])))], vocabulary)
    output = objective(collate.prepare(lm), batch, CONTEXT)
    ((_, mean),) = output.terms
    assert mean.total.item() == pytest.approx(right.item(), abs=1e-10)
    assert mean.weight == 5.0
    bare = output.metrics["cross_entropy"]
    assert bare.total.item() == pytest.approx(
        (cross_entropy(logits, targets, reduction="none") * weights).sum().item(), abs=1e-10
    )
    assert SFT()(collate.prepare(lm), batch, CONTEXT).metrics == {}  # its loss is the bare one


@pytest.mark.parametrize("wrong", [{"label_smoothing": 1.0}, {"z_loss": -1.0}, {"neftune_alpha": -1.0}])
def test_options_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SFT(**wrong)
