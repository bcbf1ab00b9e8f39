"""SFT against torch's cross-entropy, and without waiting for the device."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

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


class NoWaiting(TorchDispatchMode):
    """Refuses what makes a host wait for its device: reading a number, shapes that depend on values."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:
        assert func.overloadpacket.__name__ not in self.FORBIDDEN, f"{func} waits for the device"
        indices = args[1] if func.overloadpacket.__name__ in ("index", "index_put_") else ()
        assert not any(index is not None and index.dtype == torch.bool for index in indices), "a mask as an index"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_nothing_in_a_step_waits_for_the_device(family, new_model, vocabulary) -> None:
    model = Packed().prepare(new_model(family))
    pair = preference_pair([20, 21], [22, 23], [24])
    batch = Packed().collate([*examples(), pair], vocabulary)
    with NoWaiting():
        output = SFT()(model, batch, CONTEXT)
        output.terms[0][1].total.backward()


def test_the_watch_sees_a_host_that_waits() -> None:
    with NoWaiting(), pytest.raises(AssertionError, match="waits"):
        torch.ones(1).item()
