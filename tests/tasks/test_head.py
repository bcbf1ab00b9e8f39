"""The scoring head against plain autograd over full logits, in float64 to 1e-10."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode

from ike_tasks import CrossEntropy
from ike_tasks import logits as logits_module
from ike_tasks.head import ScoringHead
from ike_tasks.logits import LogitRule
from ike_tasks.scoring import logprobs_of

RULES = (LogitRule(), LogitRule(scale=0.25), LogitRule(cap=3.0), LogitRule(scale=2.0, cap=1.5))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch) -> None:
    monkeypatch.setattr(logits_module, "CHUNK", 4)


def new_head(rule: LogitRule, *, bias: bool, dtype: torch.dtype = torch.float64) -> ScoringHead:
    torch.manual_seed(0)
    return ScoringHead.adopt(nn.Linear(6, 11, bias=bias, dtype=dtype), rule)


def full_logprobs(head: ScoringHead, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
    raw = linear(hidden_ND, head.weight, head.bias) * head.rule.scale
    logits = raw if head.rule.cap is None else head.rule.cap * torch.tanh(raw / head.rule.cap)
    return logits.log_softmax(1)[torch.arange(len(targets_N)), targets_N]


def weighted_sum(head: ScoringHead, hidden: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return -head(hidden, targets, weights, CrossEntropy())[0]


def gradients(head: ScoringHead, hidden: Tensor, loss: Tensor) -> list[Tensor]:
    wanted = [tensor for tensor in (hidden, *head.parameters()) if tensor.requires_grad]
    return list(torch.autograd.grad(loss, wanted))


@pytest.mark.parametrize(("rule", "bias"), list(itertools.product(RULES, (False, True))))
@pytest.mark.parametrize("count", [0, 1, 4, 10])  # nothing, less than a chunk, one, and two and a half
@pytest.mark.parametrize("frozen", ["nothing", "head", "hidden"])
def test_both_calls_have_the_gradients_of_full_logits(rule, bias, count, frozen) -> None:
    head = new_head(rule, bias=bias).requires_grad_(frozen != "head")
    hidden = torch.randn(count, 6, dtype=torch.float64, requires_grad=frozen != "hidden")
    targets, weights = torch.randint(11, (count,)), torch.rand(count, dtype=torch.float64)

    wanted = full_logprobs(head, hidden, targets)
    logp = head(hidden, targets)
    torch.testing.assert_close(logp, wanted, rtol=0, atol=1e-12)

    def focal(logp_N: Tensor) -> Tensor:
        return (-((1 - logp_N.exp()) ** 2) * logp_N).sum()

    for got, right in zip(gradients(head, hidden, focal(logp)), gradients(head, hidden, focal(wanted)), strict=True):
        torch.testing.assert_close(got, right, rtol=0, atol=1e-10)

    total = weighted_sum(head, hidden, targets, weights)
    right_total = (full_logprobs(head, hidden, targets) * weights).sum()
    assert total.item() == pytest.approx(right_total.item(), abs=1e-12)
    for got, right in zip(gradients(head, hidden, -3 * total), gradients(head, hidden, -3 * right_total), strict=True):
        torch.testing.assert_close(got, right, rtol=0, atol=1e-10)


def test_without_targets_it_is_the_layer_it_was() -> None:
    plain = nn.Linear(6, 11)
    hidden = torch.randn(2, 3, 6)
    before, names = plain(hidden), [name for name, _ in plain.named_parameters()]
    head = ScoringHead.adopt(plain, LogitRule(scale=0.5))
    assert head is plain
    assert torch.equal(head(hidden), before)
    assert [name for name, _ in head.named_parameters()] == names


def test_half_precision_scores_in_float32_and_learns_in_its_own() -> None:
    head = new_head(LogitRule(), bias=True, dtype=torch.bfloat16)
    hidden = torch.randn(9, 6, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(11, (9,))
    logp = head(hidden, targets)
    assert logp.dtype == torch.float32
    # the product itself is bf16's; what follows is not: the same rounded logits in float64
    right = linear(hidden, head.weight, head.bias).double().log_softmax(1)[torch.arange(9), targets]
    torch.testing.assert_close(logp.double(), right, rtol=0, atol=1e-6)
    for score in (logp.sum(), weighted_sum(head, hidden, targets, torch.ones(9))):
        assert [g.dtype for g in gradients(head, hidden, score)] == [torch.bfloat16] * 3


def test_a_weighted_sum_goes_backward_once() -> None:
    head = new_head(LogitRule(), bias=False)
    total = weighted_sum(head, torch.randn(3, 6, dtype=torch.float64), torch.tensor([1, 2, 3]), torch.ones(3))
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        total.backward()


class Watch(TorchDispatchMode):
    """Counts matrix products, and the elements of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.largest = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:
        output = func(*args, **(kwargs or {}))
        self.products += func.overloadpacket.__name__ in ("mm", "addmm", "addmm_")
        for tensor in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return output


def watched(work: Callable[[], object]) -> Watch:
    with Watch() as watch:
        work()
    return watch


def score(head: ScoringHead, hidden: Tensor, targets: Tensor, *, is_summed: bool) -> Tensor:
    return weighted_sum(head, hidden, targets, torch.ones(len(targets))) if is_summed else head(hidden, targets).sum()


@pytest.mark.parametrize("is_summed", [False, True])
def test_when_nothing_learns_there_is_one_product_a_chunk(is_summed) -> None:
    head = new_head(LogitRule(), bias=False)
    hidden, targets = torch.randn(8, 6, dtype=torch.float64), torch.zeros(8, dtype=torch.long)
    with torch.no_grad():
        watch = watched(lambda: score(head, hidden, targets, is_summed=is_summed))
    assert watch.products == 2  # two chunks of four
    head.requires_grad_(False)
    assert watched(lambda: score(head, hidden, targets, is_summed=is_summed)).products == 2


@pytest.mark.parametrize(
    ("is_summed", "is_frozen", "products"),
    [(True, False, 3), (True, True, 2), (False, False, 4), (False, True, 2)],
)
def test_products_a_chunk_forward_and_backward(is_summed, is_frozen, products) -> None:
    """logits, d hidden, d weight; the general call makes the logits twice, a frozen head needs two products of any."""
    head = new_head(LogitRule(), bias=False).requires_grad_(not is_frozen)
    hidden = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    watch = watched(lambda: score(head, hidden, torch.zeros(8, dtype=torch.long), is_summed=is_summed).backward())
    assert watch.products == 2 * products


@pytest.mark.parametrize("is_summed", [False, True])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_no_tensor_grows_with_vocabulary_times_tokens(is_summed, is_frozen) -> None:
    head = ScoringHead.adopt(nn.Linear(6, 1000, bias=False), LogitRule(cap=5.0)).requires_grad_(not is_frozen)

    def largest(count: int) -> int:
        hidden, targets = torch.randn(count, 6, requires_grad=True), torch.zeros(count, dtype=torch.long)
        return watched(lambda: score(head, hidden, targets, is_summed=is_summed).backward()).largest

    weight, chunk = 6 * 1000, 4 * 1000
    assert largest(8) == largest(64) == max(weight, chunk)


def test_bf16_logits_are_normalised_in_float32() -> None:
    """64 rows of 32,000 logits, scale 3, rounded to bf16: within 1e-3 a token of float64; in bf16 up to 0.07 off."""
    torch.manual_seed(0)
    logits_NV, targets_N = (3 * torch.randn(64, 32000)).bfloat16(), torch.randint(32000, (64,))
    wanted_N = logits_NV.double().log_softmax(1).gather(1, targets_N[:, None]).squeeze(1)
    with torch.device("meta"):
        head = nn.Linear(64, 32000, bias=False, dtype=torch.bfloat16)
    head.weight = nn.Parameter(logits_NV.T.contiguous(), requires_grad=False)
    unit_vectors_ND = torch.eye(64, dtype=torch.bfloat16)  # a row of the product is a row of logits, exactly
    said_N = ScoringHead.adopt(head, LogitRule())(unit_vectors_ND, targets_N)
    assert said_N.dtype == torch.float32
    assert (said_N - wanted_N).abs().max() < 1e-3
    assert (logprobs_of(logits_NV, targets_N) - wanted_N).abs().max() < 1e-3
    in_bf16_N = logits_NV.log_softmax(1).gather(1, targets_N[:, None]).squeeze(1)
    assert (in_bf16_N - wanted_N).abs().max() > 1e-2
