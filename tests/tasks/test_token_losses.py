"""Token losses against their papers' formulas over full logits, by plain autograd in float64: values and gradients."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, linear
from torch.utils._python_dispatch import TorchDispatchMode

from ike_core.errors import ConfigError
from ike_tasks import CrossEntropy, ForwardKL, JensenShannon, MixedLoss, ReverseKL, TeacherLoss
from ike_tasks import logits as logits_module
from ike_tasks.head import ScoringHead
from ike_tasks.logits import FullLogits, HeadLogits, LogitRule
from ike_tasks.token_loss import ScoredTokens, TokenLoss, sum_of

VOCABULARY, HIDDEN = 11, 6
PLAIN = LogitRule()
RULES = (PLAIN, LogitRule(scale=2.0, cap=1.5))
WIDE = {"dtype": torch.float64}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logits_module, "CHUNK", 8)


def new_head(rule: LogitRule = PLAIN, *, bias: bool = False, seed: int = 0, wide: int = HIDDEN) -> ScoringHead:
    torch.manual_seed(seed)
    return ScoringHead.adopt(nn.Linear(wide, VOCABULARY, bias=bias, **WIDE), rule)


def full_logits(head: ScoringHead, hidden_ND: Tensor) -> Tensor:
    raw = linear(hidden_ND, head.weight, head.bias) * head.rule.scale
    return raw if head.rule.cap is None else head.rule.cap * torch.tanh(raw / head.rule.cap)


TEACHER = new_head(seed=5, wide=3)
"""Of another hidden size, without gradients."""
TEACHER_HIDDEN = 2 * torch.randn(20, 3, generator=torch.Generator().manual_seed(9), **WIDE)
TEACHER.requires_grad_(False)


def source(count: int) -> HeadLogits:
    return HeadLogits(TEACHER_HIDDEN[:count], TEACHER.weight, None, TEACHER.rule)


def says(count: int, temperature: float) -> Tensor:
    return (full_logits(TEACHER, TEACHER_HIDDEN[:count]) / temperature).softmax(1)


# -- the definitions: [N, V] logits, [N] targets -> [N] ------------------------------------------------------------


def smoothed(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets, label_smoothing=0.2, reduction="none")


def penalised(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets, reduction="none") + 0.3 * logits.exp().sum(1).log() ** 2


def dynamic(logits: Tensor, targets: Tensor) -> Tensor:
    p = logits.softmax(1)[torch.arange(len(targets)), targets]
    return -p.detach() * p.log()


def everything(logits: Tensor, targets: Tensor) -> Tensor:
    p = logits.softmax(1)[torch.arange(len(targets)), targets]
    return p.detach() * smoothed(logits, targets) + 0.3 * logits.logsumexp(1) ** 2


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p, q) by torch, whose arguments are the other way round."""
    return kl_div(q.log(), p, reduction="none").sum(1)


def outcomes(p: Tensor, ids: Tensor) -> Tensor:
    """Some ids' probabilities, and that of all others."""
    top = p.gather(1, ids)
    return torch.cat([top, 1 - top.sum(1, keepdim=True)], 1)


def distilled(divergence: Callable[[Tensor, Tensor], Tensor], temperature: float, k: int) -> Any:
    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        p, q = says(len(targets), temperature), (logits / temperature).softmax(1)
        if k:
            ids = p.topk(k).indices
            p, q = outcomes(p, ids), outcomes(q, ids)
        return temperature**2 * divergence(p, q)

    return loss


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    m = 0.3 * p + 0.7 * q
    return 0.3 * kl(p, m) + 0.7 * kl(q, m)


def reverse_kl(p: Tensor, q: Tensor) -> Tensor:
    return kl(q, p)


def mixed(logits: Tensor, targets: Tensor) -> Tensor:
    forward, backward = distilled(kl, 1.0, 0), distilled(reverse_kl, 2.0, 3)
    return 0.5 * forward(logits, targets) + 2.0 * backward(logits, targets) + 0.1 * dynamic(logits, targets)


def teacher(count: int, divergence: Any, temperature: float, k: int) -> TeacherLoss:
    return TeacherLoss(teacher=source(count), divergence=divergence, temperature=temperature, top_k=k)


def mixture(count: int) -> MixedLoss:
    return MixedLoss(
        {
            "forward": (0.5, teacher(count, ForwardKL(), 1.0, 0)),
            "backward": (2.0, teacher(count, ReverseKL(), 2.0, 3)),
            "rows": (0.1, CrossEntropy(dynamic=True)),
        }
    )


Definition = Callable[[Tensor, Tensor], Tensor]
LOSSES: Mapping[str, tuple[Callable[[int], TokenLoss], Definition]] = {
    "smoothed": (lambda _: CrossEntropy(label_smoothing=0.2), smoothed),
    "z": (lambda _: CrossEntropy(z_loss=0.3), penalised),
    "dynamic": (lambda _: CrossEntropy(dynamic=True), dynamic),
    "smoothed, z, dynamic": (lambda _: CrossEntropy(label_smoothing=0.2, z_loss=0.3, dynamic=True), everything),
    "mixed": (mixture, mixed),
} | {
    f"{name}, temperature {temperature}, top {k}": (
        lambda count, ours=ours, temperature=temperature, k=k: teacher(count, ours, temperature, k),
        distilled(theirs, temperature, k),
    )
    for (name, ours, theirs), (temperature, k) in itertools.product(
        (
            ("forward", ForwardKL(), kl),
            ("reverse", ReverseKL(), reverse_kl),
            ("jensen-shannon", JensenShannon(0.3), jensen_shannon),
        ),
        ((1.0, 0), (2.5, 0), (2.5, 4)),
    )
}


# -- the claims ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "frozen"), [(0, "nothing"), (1, "nothing"), (19, "nothing"), (19, "head"), (19, "hidden")]
)  # nothing, less than a chunk, and more than two
@pytest.mark.parametrize("rule", RULES, ids=["plain", "scaled and capped"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradients_are_those_of_full_logits(name: str, rule: LogitRule, count: int, frozen: str) -> None:
    made, definition = LOSSES[name]
    head = new_head(rule, bias=count == 19).requires_grad_(frozen != "head")
    hidden = (3 * torch.randn(count, HIDDEN, **WIDE)).requires_grad_(frozen != "hidden")
    targets, weights = torch.randint(VOCABULARY, (count,)), torch.rand(count, **WIDE)

    right = (definition(full_logits(head, hidden), targets) * weights).sum()
    total, _ = head(hidden, targets, weights, made(count))
    assert total.item() == pytest.approx(right.item(), abs=1e-11)
    learning = [tensor for tensor in (hidden, *head.parameters()) if tensor.requires_grad]
    wanted, got = (torch.autograd.grad(-3 * loss, learning) for loss in (right, total))
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_a_model_without_a_head_of_its_own_learns_the_same_from_full_logits(name: str) -> None:
    made, definition = LOSSES[name]
    logits = torch.randn(19, VOCABULARY, **WIDE, requires_grad=True)
    targets, weights = torch.randint(VOCABULARY, (19,)), torch.rand(19, **WIDE)
    total, _ = sum_of(logits * 1.0, ScoredTokens(targets, weights), made(19))
    right = (definition(logits, targets) * weights).sum()
    assert total.item() == pytest.approx(right.item(), abs=1e-11)
    (got,), (wanted,) = torch.autograd.grad(total, logits), torch.autograd.grad(right, logits)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)


def test_parts_are_weighted_sums_before_their_coefficients() -> None:
    head, hidden = new_head(), torch.randn(19, HIDDEN, **WIDE)
    targets, weights = torch.randint(VOCABULARY, (19,)), torch.rand(19, **WIDE)
    loss = mixture(19)
    total, parts = head(hidden, targets, weights, loss)
    logits = full_logits(head, hidden)
    wanted = [distilled(kl, 1.0, 0), distilled(reverse_kl, 2.0, 3), dynamic]
    right = torch.stack([(definition(logits, targets) * weights).sum() for definition in wanted])
    torch.testing.assert_close(parts, right, rtol=0, atol=1e-10)
    assert not parts.requires_grad
    assert total.item() == pytest.approx((parts @ torch.tensor([0.5, 2.0, 0.1], **WIDE)).item())
    assert tuple(loss.names) == ("forward", "backward", "rows")
    _, (bare,) = head(hidden, targets, weights, CrossEntropy(dynamic=True, z_loss=1.0))
    assert bare.item() == pytest.approx((cross_entropy(logits, targets, reduction="none") * weights).sum().item())


@pytest.mark.parametrize("divergence", [ForwardKL(), ReverseKL(), JensenShannon(0.3)])
@pytest.mark.parametrize("k", [0, 3])
def test_a_student_that_says_what_its_teacher_says_is_at_rest(divergence: Any, k: int) -> None:
    hidden = TEACHER_HIDDEN.clone().requires_grad_()
    total, _ = TEACHER(hidden, torch.zeros(20, dtype=torch.long), torch.ones(20), teacher(20, divergence, 1.0, k))
    total.backward()
    assert abs(total.item()) < 1e-12
    assert hidden.grad.abs().max() < 1e-12


@pytest.mark.parametrize("divergence", [ForwardKL(), ReverseKL(), JensenShannon(0.3)])
@pytest.mark.parametrize("k", [0, 2])
def test_sure_models_that_disagree_give_finite_numbers_in_float32(divergence: Any, k: int) -> None:
    """Logits of 1e3 apart: forward and reverse KL are that large, Jensen-Shannon at most log 2."""
    student, sure = torch.zeros(2, 5), torch.zeros(2, 5)
    student[:, 0], sure[:, 1] = 1e3, 1e3
    student.requires_grad_()
    loss = TeacherLoss(teacher=FullLogits(sure), divergence=divergence, top_k=k)
    total, _ = sum_of(student, ScoredTokens(torch.zeros(2, dtype=torch.long), torch.ones(2)), loss)
    total.backward()
    bound = math.log(2) if isinstance(divergence, JensenShannon) else 1e3
    assert 0.5 < total.item() / 2 <= bound * 1.001
    assert student.grad.isfinite().all()


def test_cross_entropy_is_finite_where_the_target_is_1e3_away() -> None:
    logits = torch.zeros(1, 5)
    logits[0, 0] = 1e3
    logits.requires_grad_()
    loss = CrossEntropy(label_smoothing=0.1, dynamic=True)
    total, (bare,) = sum_of(logits, ScoredTokens(torch.ones(1, dtype=torch.long), torch.ones(1)), loss)
    total.backward()
    assert (total.item(), bare.item()) == (0.0, 1e3)  # p = exp(-1000) = 0
    assert logits.grad.isfinite().all()


def test_a_teacher_of_another_vocabulary_is_refused_with_both_sizes() -> None:
    head = ScoringHead.adopt(nn.Linear(HIDDEN, VOCABULARY + 2, bias=False, **WIDE), LogitRule())
    with pytest.raises(ConfigError, match=r"scores 11 ids and the student 13.*same tokenizer"):
        head(
            torch.randn(4, HIDDEN, **WIDE),
            torch.zeros(4, dtype=torch.long),
            torch.ones(4),
            teacher(4, ForwardKL(), 1, 0),
        )


# -- the cost -----------------------------------------------------------------------------------------------------


class Watch(TorchDispatchMode):
    """Counts matrix products, and the elements of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.largest = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.products += func.overloadpacket.__name__ in ("mm", "addmm", "addmm_")
        for tensor in output if isinstance(output, Sequence) else [output]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return output


@pytest.mark.parametrize("name", LOSSES)
def test_no_tensor_grows_with_vocabulary_times_tokens(name: str) -> None:
    made, _ = LOSSES[name]

    def largest(count: int) -> int:
        head = new_head(LogitRule(cap=5.0))
        hidden = torch.randn(count, HIDDEN, **WIDE, requires_grad=True)
        with Watch() as watch:
            head(hidden, torch.zeros(count, dtype=torch.long), torch.ones(count), made(count))[0].backward()
        return watch.largest

    assert largest(20) == max(HIDDEN * VOCABULARY, made(0).chunk * VOCABULARY, HIDDEN * 20)


@pytest.mark.parametrize(("is_frozen", "learns", "products"), [(False, True, 3), (True, True, 2), (True, False, 1)])
def test_each_product_is_made_once(is_frozen: bool, learns: bool, products: int) -> None:
    """Logits, d hidden, d weight, and the teacher's logits; nothing is computed again in the backward."""
    head = new_head().requires_grad_(not is_frozen)
    hidden = torch.randn(4, HIDDEN, **WIDE, requires_grad=learns)  # two chunks of a teacher's loss
    weights, targets = torch.ones(4), torch.zeros(4, dtype=torch.long)
    with Watch() as watch:
        total, _ = head(hidden, targets, weights, teacher(4, ForwardKL(), 1.0, 0))
        if learns:
            total.backward()
    assert watch.products == 2 * (products + 1)
