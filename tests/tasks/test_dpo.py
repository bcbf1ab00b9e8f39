"""DPO on trees against separate sequences, read by the model as transformers calls it, one by one.

The tokenizer of these tests is none: prompts and answers are ids.
"""

import math
from collections.abc import Callable, Sequence

import attrs
import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.errors import ConfigError, DataError
from ike_core.examples import Comparison, Example, Segment, preference_pair
from ike_core.frozen_models import FrozenModels
from ike_core.step_output import StepOutput
from ike_tasks import CPO, DPO, ORPO, Packed, PaddedRows, SimPO, pair_lengths, pair_logprobs
from ike_tasks.pair_mixture import LOSSES
from ike_tasks.pair_scores import length_weights

COLLATES = (Packed(multiple_of=1), PaddedRows())
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gpt2", "gpt_neox")
PAIRS = (  # prompt, chosen, rejected
    ([11, 12, 13, 14, 15], [21, 22, 23], [24, 25, 26, 27]),
    ([16, 17], [31, 32, 33, 34], [31, 32, 35]),  # they share a beginning, which the trunk holds
    ([18], [41, 2], [2]),  # one says nothing but the end
)
SMOOTHED = ("robust", "conservative", "exo_pair")
WEIGHTS, MARGINS = (1.0, 0.5, 2.0), (0.0, 0.4, 0.1)


def trees() -> list[Comparison]:
    rows = zip(PAIRS, WEIGHTS, MARGINS, strict=True)
    return [preference_pair(*pair, weight=weight, margin=margin) for pair, weight, margin in rows]


def new_context(reference: object = None) -> Context:
    return Context(step=0, steps=1, frozen=FrozenModels({} if reference is None else {"reference": reference}))


def moved(model: torch.nn.Module) -> torch.nn.Module:
    """Another model: the reference is to differ from the policy."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.requires_grad_(False)


Alone = Callable[..., Tensor]


def logprob_alone(read: Alone, model: torch.nn.Module, prompt: Sequence[int], answer: Sequence[int]) -> Tensor:
    """Sum over the answer's places, each said after all before it: an explicit loop."""
    logp = read(model, [*prompt, *answer]).log_softmax(-1)
    return sum(logp[len(prompt) + place - 1, token] for place, token in enumerate(answer))


@pytest.mark.parametrize("collate", COLLATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_trees_have_the_loss_and_gradients_of_separate_sequences(
    collate, family, new_model, copy_of, logits_alone, vocabulary
) -> None:
    """-log sigmoid(b (policy margin - reference margin) - m), weighted by rows, to 1e-12 in float64."""
    lm = new_model(family)
    twin, reference = copy_of(lm), moved(copy_of(lm))
    lone_reference = copy_of(reference)
    gaps = []
    for prompt, *answers in PAIRS:
        chosen, rejected = (
            logprob_alone(logits_alone, twin, prompt, answer)
            - logprob_alone(logits_alone, lone_reference, prompt, answer)
            for answer in answers
        )
        gaps.append(0.1 * (chosen - rejected))
    weights, margins = torch.tensor(WEIGHTS, dtype=torch.float64), torch.tensor(MARGINS, dtype=torch.float64)
    wanted = -(weights * logsigmoid(torch.stack(gaps) - margins)).sum() / weights.sum()
    wanted.backward()

    model = collate.prepare(lm)
    output = DPO(beta=0.1)(model, collate.collate(trees(), vocabulary), new_context(collate.prepare(reference)))
    ((_, mean),) = output.terms
    assert (mean.per, mean.weight) == ("pairs", 3.5)
    (mean.total / mean.weight).backward()
    assert (mean.total / mean.weight).item() == pytest.approx(wanted.item(), abs=1e-12)
    for (name, ours), theirs in zip(lm.named_parameters(), twin.parameters(), strict=True):
        scale = max(1.0, theirs.grad.abs().max().item())
        assert (ours.grad - theirs.grad).abs().max().item() < 1e-12 * scale, name


@pytest.fixture
def said(vocabulary) -> Callable[..., StepOutput]:
    """What an objective returns where the answers of the pairs have these log-probabilities, one token each, whatever
    a model would say."""

    def said(objective, policy, reference=(), *, weights=(), margins=()) -> StepOutput:
        count = len(policy)
        rows = zip(weights or (1.0,) * count, margins or (0.0,) * count, strict=True)
        batch = Packed().collate(
            [preference_pair([5], [6], [7], weight=weight, margin=margin) for weight, margin in rows], vocabulary
        )
        model, frozen = Says.of(policy), Says.of(reference or [(0.0, 0.0)] * count)
        return objective(model, batch, new_context(frozen))

    return said


class Says(torch.nn.Module):
    """A model that has been asked before."""

    def __init__(self, logp_N: Tensor) -> None:
        super().__init__()
        self.logp_N = logp_N

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> "Says":
        return cls(torch.tensor(pairs, dtype=torch.float64).flatten().requires_grad_())

    def forward(self, *, scored: Batch) -> Tensor:
        return self.logp_N


@pytest.fixture(autouse=True)
def _models_of_numbers(monkeypatch) -> None:
    """`target_logprobs` takes a prepared model, or `Says`."""
    from ike_tasks import logprobs

    real = logprobs.prepared
    monkeypatch.setattr(logprobs, "prepared", lambda model: model if isinstance(model, Says) else real(model))


def value(output: StepOutput, name: str = "") -> float:
    mean = output.metrics[name] if name else output.terms[0][1]
    return float(mean.total.detach() / mean.weight)


def test_the_sums_over_answers_are_compared(said) -> None:
    """-10 and -14, of the reference -12 and -13: h = 3, -log sigmoid(0.3) = 0.554355, however long the answers."""
    output = said(DPO(beta=0.1), [(-10.0, -14.0)], [(-12.0, -13.0)])
    assert value(output) == pytest.approx(0.554355, abs=5e-7)
    wanted = {
        "accuracy": 1.0, "margin": 0.3, "rewards/chosen": 0.2, "rewards/rejected": -0.1, "logps/chosen": -10.0,
        "logps/rejected": -14.0,
    }  # fmt: skip
    assert {name: value(output, name) for name in output.metrics} == pytest.approx(wanted)


def test_a_tie_is_not_right(said) -> None:
    """Rewards (1, 0), (0, 1), (2, 2): losses 0.313262, 1.313262, 0.693147, and one of three is right."""
    output = said(DPO(beta=1.0), [(1.0, 0.0), (0.0, 1.0), (2.0, 2.0)])
    assert value(output) == pytest.approx((0.313262 + 1.313262 + 0.693147) / 3, abs=5e-7)
    assert value(output, "accuracy") == pytest.approx(1 / 3)


def test_margin_and_weight_are_the_row_s(said) -> None:
    """Rewards 1 and 0, margin 0.5: 0.474077. With weights 3 and 1 beside a tie: (3 x 0.474077 + 0.693147) / 4."""
    output = said(DPO(beta=1.0), [(1.0, 0.0), (2.0, 2.0)], weights=(3.0, 1.0), margins=(0.5, 0.0))
    assert value(output) == pytest.approx((3 * 0.474077 + 0.693147) / 4, abs=5e-7)
    assert value(output, "accuracy") == pytest.approx(3 / 4)
    without = said(DPO(beta=1.0, margin_scale=0.0), [(1.0, 0.0)], margins=(0.5,))
    assert value(without) == pytest.approx(0.313262, abs=5e-7)


def test_policy_equal_to_reference_is_log_two(said) -> None:
    same = [(-10.0, -14.0), (-3.0, -2.0)]
    output = said(DPO(beta=0.1), same, same)
    assert value(output) == pytest.approx(math.log(2), abs=1e-15)
    assert (value(output, "margin"), value(output, "accuracy")) == (0.0, 0.0)


def test_losses_mix_by_their_weights(said) -> None:
    """h = 0.3: 0.8 x 0.554355 + 0.5 x hinge 0.7 + 0.25 x cross-entropy of one token at -10."""
    objective = DPO(beta=0.1, loss={"sigmoid": 0.8, "hinge": 0.5, "sft": 0.25})
    output = said(objective, [(-10.0, -14.0)], [(-12.0, -13.0)])
    assert value(output) == pytest.approx(0.8 * 0.554355 + 0.5 * 0.7 + 0.25 * 10, abs=1e-6)


def two_and_four(vocabulary) -> Batch:
    """Answers of two and of four tokens, the first of which they share."""
    return Packed().collate([preference_pair([5], [6, 7], [6, 8, 9, 10])], vocabulary)


@pytest.mark.parametrize("collate", COLLATES)
def test_what_answers_share_counts_to_both(collate, new_model, copy_of, logits_alone, vocabulary) -> None:
    lm = new_model()
    twin = copy_of(lm)
    batch = collate.collate(trees(), vocabulary)
    assert pair_lengths(batch).tolist() == [[3, 4], [4, 3], [2, 1]]
    logp_E2 = pair_logprobs(collate.prepare(lm), batch)
    for found, (prompt, *answers) in zip(logp_E2, PAIRS, strict=True):
        wanted = [logprob_alone(logits_alone, twin, prompt, answer).item() for answer in answers]
        assert found.tolist() == pytest.approx(wanted, abs=1e-12)


def test_averaged_losses_divide_by_each_answer_s_own_length(vocabulary) -> None:
    """c = 2 over 2 tokens, r = -1 over 4: averages 1 and -0.25. sigmoid_norm: b = 2, h = 2.5; ipo: (1.25 - 1/4)^2."""
    batch = two_and_four(vocabulary)  # tokens: 6 (shared), 7, then 8, 9, 10
    policy, reference = Says.of([(0.0, 2.0)]), Says.of([(0.0, 0.0)])
    policy.logp_N = torch.tensor([0.5, 1.5, -0.5, -0.5, -0.5], dtype=torch.float64)  # sums 2 and -1
    reference.logp_N = torch.zeros(5, dtype=torch.float64)
    context = new_context(reference)
    assert value(DPO(beta=2.0, loss="sigmoid_norm")(policy, batch, context)) == pytest.approx(
        math.log1p(math.exp(-2.5))
    )
    assert value(DPO(beta=2.0, loss="ipo")(policy, batch, context)) == pytest.approx(1.0)


def test_tokens_beyond_the_shorter_answer_count_less(vocabulary) -> None:
    """Answers of 2 and 4 tokens: of the longer one the first two, the shared one with them, count whole."""
    batch = two_and_four(vocabulary)
    assert length_weights(batch, ld_alpha=0.25).tolist() == [1, 1, 1, 0.25, 0.25]
    reversed_pair = Packed().collate([*trees(), preference_pair([5], [8, 9, 10], [7])], vocabulary)
    assert length_weights(reversed_pair, ld_alpha=0.0).tolist()[-4:] == [1, 0, 0, 1]


@pytest.mark.parametrize("collate", COLLATES)
@pytest.mark.parametrize("is_lean", [True, False])
def test_pairs_weigh_by_how_near_they_are_to_the_policy(
    collate, is_lean, new_model, copy_of, logits_alone, vocabulary
) -> None:
    """w(y) = exp(mean of log p(token) - log sum of squared p), of both answers multiplied: a constant."""
    lm = new_model("llama", tied=False)
    twin, reference = copy_of(lm), copy_of(lm).requires_grad_(False)
    total, closeness = 0.0, []
    for prompt, *answers in PAIRS:
        log_weight, logps = 0.0, []
        for answer in answers:
            logp = logits_alone(twin, [*prompt, *answer]).log_softmax(-1)[len(prompt) - 1 : -1]
            said = logp.gather(1, torch.tensor(answer)[:, None]).squeeze(1)
            log_weight += (said - logp.exp().square().sum(1).log()).detach().mean().item()
            logps.append(said.sum())
        closeness.append(math.exp(log_weight))
        gap = logps[0] - logps[1] - (logps[0] - logps[1]).detach()
        total = total - closeness[-1] * logsigmoid(0.1 * gap)
    total.backward()
    model = collate.prepare(lm)
    model.is_lean = is_lean
    pairs = [preference_pair(*pair) for pair in PAIRS]
    output = DPO(beta=0.1, wpo=True)(model, collate.collate(pairs, vocabulary), new_context(collate.prepare(reference)))
    output.terms[0][1].total.backward()
    assert value(output) == pytest.approx(total.item() / 3, abs=1e-12)
    assert value(output, "closeness") == pytest.approx(sum(closeness) / 3, abs=1e-12)
    for ours, theirs in zip(lm.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=0, atol=1e-11)


def test_orpo_is_cross_entropy_and_odds(said) -> None:
    """p = 0.5 and 0.2: odds 1 and 0.25; -log 0.5 + 0.1 log(1 + 0.25 / 1)."""
    output = said(ORPO(odds_weight=0.1), [(math.log(0.5), math.log(0.2))])
    assert value(output) == pytest.approx(math.log(2) + 0.1 * math.log(1.25), abs=1e-12)
    assert value(output, "margin") == pytest.approx(math.log(4))


def test_simpo_wants_a_margin_of_averages(said) -> None:
    """b = 2, log p -1 and -3 of one token: 2 (-1 + 3) - 1 - 0.5 = 2.5."""
    output = said(SimPO(beta=2.0, gamma=1.0), [(-1.0, -3.0)], margins=(0.5,))
    assert value(output) == pytest.approx(math.log1p(math.exp(-2.5)), abs=1e-12)
    both = said(SimPO(beta=2.0, gamma=1.0, sft_weight=0.5), [(-1.0, -3.0)], margins=(0.5,))
    assert value(both) == pytest.approx(math.log1p(math.exp(-2.5)) + 0.5, abs=1e-12)


def test_cpo_is_dpo_without_a_reference_and_cross_entropy(said) -> None:
    output = said(CPO(beta=0.1, sft_weight=1.0), [(-10.0, -13.0)])
    assert value(output) == pytest.approx(0.554355 + 10, abs=5e-7)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"loss": "sigmiod"}, "'sigmiod' is unknown; known are sigmoid, hinge"),
        ({"loss": "aot"}, "ike_tasks:CoupledDPO"),
        ({"loss": "ipo", "beta": 0.0}, "must be > 0 for ipo"),
        ({"loss": {}}, "names none"),
        ({"loss": {"sigmoid": 0.0}}, "above 0"),
        ({"label_smoothing": 0.1}, "is read by robust"),
        ({"loss": "exo_pair"}, "must be > 0 for exo_pair"),
        ({"loss": "ipo", "ld_alpha": 0.5}, "leave it out"),
    ],
)
def test_settings_that_no_formula_takes_are_refused(settings, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        DPO(**settings)


def test_what_is_no_pair_is_refused(new_model, vocabulary) -> None:
    model = Packed().prepare(new_model())
    ranked = Comparison(Segment.prompt([5]), tuple(Segment.answer([token]) for token in (6, 7, 8)))
    for rows in ([ranked], [Example((Segment.prompt([5]), Segment.answer([6])))]):
        with pytest.raises(DataError, match="no pairs: each has a chosen and a rejected answer"):
            DPO()(model, Packed().collate(rows, vocabulary), new_context(model))


def test_without_a_reference_the_error_says_what_to_write(new_model, vocabulary) -> None:
    model = Packed().prepare(new_model())
    with pytest.raises(ConfigError, match=r"\[frozen.reference\] with uses = \"ike_core.runtime:PretrainedModel\""):
        DPO()(model, Packed().collate(trees(), vocabulary), new_context())


@pytest.mark.parametrize(
    "objective", [DPO(loss={"sigmoid": 1.0, "sft": 0.1}), DPO(ld_alpha=0.5, wpo=True), ORPO(), SimPO(), CPO()]
)
@pytest.mark.parametrize("collate", COLLATES)
def test_filler_has_a_graph_and_adds_nothing(objective, collate, new_model, copy_of, vocabulary) -> None:
    lm = new_model()
    reference = collate.prepare(copy_of(lm).requires_grad_(False))
    model = collate.prepare(lm)
    ((_, mean),) = objective(model, collate.collate([], vocabulary), new_context(reference)).terms
    mean.total.backward()
    assert (mean.total.item(), mean.weight) == (0.0, 0.0)
    assert all(torch.count_nonzero(parameter.grad) == 0 for parameter in lm.parameters())


def test_a_pair_of_weight_zero_changes_nothing(new_model, copy_of, vocabulary) -> None:
    lm = new_model()
    context = new_context(moved(Packed().prepare(copy_of(lm))))
    model = Packed().prepare(lm)
    first, *_, last = trees()
    silent = attrs.evolve(last, weight=0.0)
    alone, both = (DPO()(model, Packed().collate(rows, vocabulary), context) for rows in ([first], [first, silent]))
    assert value(both) == value(alone)
    assert value(both, "accuracy") == value(alone, "accuracy")


EVERY = [DPO(loss=name, label_smoothing=0.1 if name in SMOOTHED else 0.0) for name in LOSSES]


@pytest.mark.parametrize("objective", [*EVERY, DPO(ld_alpha=0.5), DPO(wpo=True), ORPO(), SimPO(), CPO()], ids=str)
def test_nothing_in_a_step_waits_for_the_device(objective, new_model, copy_of, vocabulary, no_waiting) -> None:
    lm = new_model()
    reference = Packed().prepare(copy_of(lm).requires_grad_(False))
    model, batch = Packed().prepare(lm), Packed().collate(trees(), vocabulary)
    with no_waiting():
        output = objective(model, batch, new_context(reference))
        output.terms[0][1].total.backward()
