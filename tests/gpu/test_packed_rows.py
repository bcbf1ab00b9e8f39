"""On a GPU packed rows say what padded ones say, in what precision and shape they come."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM

from ike_core import Comparison, Example, Segment
from ike_core.batch import Vocabulary
from ike_core.interfaces import Collate
from ike_core.layout import Layout, Tree
from ike_core.runtime.placement import place
from ike_tasks import Packed, PaddedRows, attention, device_attention, target_logprobs

VOCABULARY = Vocabulary(size=512, pad=2, eos=2)
FLAT = [
    Example((Segment.prompt(range(10, 10 + prompt)), Segment.answer(range(60, 60 + answer))))
    for prompt, answer in [(3, 9), (1, 30), (20, 4), (40, 17)]
]
TREES = [
    Comparison(Segment.prompt(range(5, 30)), (Segment.answer(range(40, 52)), Segment.answer(range(80, 85)))),
    Comparison(Segment.prompt([7]), tuple(Segment.answer(range(first, first + 6)) for first in (100, 200, 300))),
]
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float64: 1e-6}
"""Relative; Llama computes its norms in float32 whatever the model is in."""


@pytest.fixture(scope="module")
def new_model(llama: Path) -> Any:
    def load(dtype: torch.dtype) -> nn.Module:
        return AutoModelForCausalLM.from_pretrained(llama, dtype=dtype, attn_implementation="sdpa").cuda()

    return load


def read(model: nn.Module, collate: Collate, examples: Sequence[Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probabilities of the targets, and the gradient of their sum by parameter, both in float64."""
    model.zero_grad()
    scoring = collate.prepare(model)
    logp_N = target_logprobs(scoring, place(collate.collate(examples, VOCABULARY), torch.device("cuda", 0)))
    logp_N.sum().backward()
    return logp_N.detach().double(), {name: p.grad.double() for name, p in model.named_parameters()}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("examples", [FLAT, TREES], ids=["flat", "trees"])
def test_packed_rows_are_padded_rows(examples, dtype, new_model) -> None:
    packed, packed_slopes = read(new_model(dtype), Packed(), examples)
    padded, padded_slopes = read(new_model(dtype), PaddedRows(), examples)
    assert (packed - padded).norm() < TOLERANCE[dtype] * padded.norm()
    for name, slope in padded_slopes.items():
        assert (packed_slopes[name] - slope).norm() < 3 * TOLERANCE[dtype] * slope.norm(), name


def test_varlen_does_what_segments_do_where_heads_are_not_grouped() -> None:
    """Grouped heads need torch 2.12; the kernel itself is there from 2.11 on."""
    if torch.__version__ < "2.11":
        pytest.skip("needs torch 2.11")
    layout = Layout(((Tree(200), Tree(17), Tree(1), Tree(150)),))
    torch.manual_seed(0)
    inputs = [torch.randn(1, 4, 384, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    slope = torch.randn(1, 4, 368, 64, device="cuda", dtype=torch.bfloat16)

    def outcome(output: Tensor) -> list[Tensor]:
        return [output[:, :, :368], *torch.autograd.grad((output[:, :, :368] * slope).sum(), inputs)]

    got = outcome(device_attention.by_varlen(*inputs, layout, scale=None))
    wanted = outcome(attention._by_segments(*inputs, layout, scale=None, dropout=0.0))
    for mine, theirs in zip(got, wanted, strict=True):
        assert (mine - theirs)[:, :, :368].float().norm() < 2e-2 * theirs[:, :, :368].float().norm()


def test_new_lengths_and_layouts_compile_nothing_new(new_model) -> None:
    """The third length is the last to be compiled for: the first is fixed, the second makes it free."""
    model, packed = new_model(torch.float32), Packed()
    scoring = packed.prepare(model)

    def step(lengths: Sequence[int]) -> int:
        examples = [Example((Segment.answer(range(3, 3 + length)),)) for length in lengths]
        batch = place(packed.collate(examples, VOCABULARY), torch.device("cuda", 0))
        target_logprobs(scoring, batch).sum().backward()
        return counters["stats"]["unique_graphs"]

    for lengths in ([100, 90], [300, 60], [400, 100], [20]):
        step(lengths)
    known = step([500])
    assert known > 0
    for lengths in ([100, 101], [7, 300], [450, 50, 200], [30], [500, 400]):
        assert step(lengths) == known
