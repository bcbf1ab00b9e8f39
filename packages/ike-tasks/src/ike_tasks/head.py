"""The output layer that scores: log-probabilities of given tokens, and sums of token losses, without full logits.

N scored tokens, C tokens of a chunk, V vocabulary, D hidden size, K parts of a loss.

Logits exist for one chunk at a time. All chunks stand inside one call of the module, since ZeRO-3 gathers a weight a
call: a loop over calls would make the number of collectives depend on the data.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ike_tasks import logits as chunks
from ike_tasks.head_gradients import HeadGradients
from ike_tasks.logits import LogitRule, make_logits, pick, spans, wide
from ike_tasks.token_loss import ScoredTokens, TokenLoss, add_up


class ScoringHead(nn.Linear):
    """An output layer with two more ways of being called. What it was before stays: parameters, names, ties, hooks."""

    rule: LogitRule

    @classmethod
    def adopt(cls, head: nn.Linear, rule: LogitRule) -> "ScoringHead":
        """Turns a plain output layer into this one, in place."""
        head.__class__ = cls
        assert isinstance(head, cls)
        head.rule = rule
        return head

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        loss: TokenLoss | None = None,
        *,
        with_collisions: bool = False,
    ) -> Any:
        """[..., D] -> [..., V].  With targets [N]: [N, D] -> log-probabilities [N], float32 (float64 stays float64).

        `with_collisions`: and the log of the sum of all ids' squared probabilities, [N]; no gradient flows through it.
        With weights [N] and a token loss too: -> [] and [K], the sum of weight * loss, whose gradient is made here and
        now, and the sums of its parts, through which none flows.
        """
        if targets is None:
            return super().forward(hidden)
        layer: tuple[Tensor, Tensor, Tensor | None] = (hidden, self.weight, self.bias)
        if not torch.is_grad_enabled():  # a Function is asked for gradients all the same
            layer = (hidden.detach(), self.weight.detach(), None if self.bias is None else self.bias.detach())
        if loss is None:
            logp_N, collisions_N = _LogProbs.apply(*layer, targets, self.rule, with_collisions)  # type: ignore[no-untyped-call]
            return (logp_N, collisions_N) if with_collisions else logp_N
        assert weights is not None
        scored = ScoredTokens(targets, weights)
        sums: tuple[Tensor, Tensor] = _LossSum.apply(*layer, scored, loss, self.rule)  # type: ignore[no-untyped-call]
        return sums


class _LogProbs(torch.autograd.Function):
    """Any loss over log-probabilities. The chunks are computed again in the backward, unless the head is frozen."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        rule: LogitRule,
        with_collisions: bool,
    ) -> tuple[Tensor, Tensor]:
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        keeps_rows = needs_hidden and not (needs_weight or needs_bias)
        logp, normalizers, rows, collisions = [], [], [], [hidden_ND.new_empty(0, dtype=wide(weight_VD))]
        for at in spans(len(targets_N), chunks.CHUNK):
            logits_CV = make_logits(hidden_ND[at], weight_VD, bias_V, rule)
            normalizer_C = logits_CV.logsumexp(1)
            logp.append(pick(logits_CV, targets_N[at]) - normalizer_C)
            normalizers.append(normalizer_C)
            if with_collisions:
                collisions.append((2 * logits_CV).logsumexp(1) - 2 * normalizer_C)
            if keeps_rows:  # d logp / d hidden is known up to one factor a row: nothing is left to recompute
                rows.append(_gradient(logits_CV, normalizer_C, targets_N[at], rule).to(weight_VD.dtype) @ weight_VD)
            del logits_CV  # or two chunks would exist at a time
        ctx.rule, ctx.keeps_rows = rule, keeps_rows
        if keeps_rows:
            ctx.save_for_backward(torch.cat(rows))
        elif needs_weight or needs_bias:
            ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, torch.cat(normalizers))
        said = torch.cat(logp), torch.cat(collisions)
        ctx.mark_non_differentiable(said[1])
        return said

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_N: Tensor, _: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None]:
        if ctx.keeps_rows:
            (rows_ND,) = ctx.saved_tensors
            return rows_ND * grad_N[:, None].to(rows_ND.dtype), None, None, None, None, None
        hidden_ND, weight_VD, bias_V, targets_N, normalizer_N = ctx.saved_tensors
        sums = HeadGradients.zeros(hidden_ND, weight_VD, bias_V, ctx.needs_input_grad)
        for at in spans(len(targets_N), chunks.CHUNK):
            logits_CV = make_logits(hidden_ND[at], weight_VD, bias_V, ctx.rule)
            gradient_CV = _gradient(logits_CV, normalizer_N[at], targets_N[at], ctx.rule).mul_(grad_N[at, None])
            sums.add(gradient_CV, hidden_ND[at], weight_VD)
            del logits_CV, gradient_CV
        return (*sums.scaled(None), None, None, None)


class _LossSum(torch.autograd.Function):
    """A sum over tokens: the gradient is known up to one factor before the backward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        scored: ScoredTokens,
        loss: TokenLoss,
        rule: LogitRule,
    ) -> tuple[Tensor, Tensor]:
        needed = ctx.needs_input_grad
        learns = any(needed[:3])
        gradients = HeadGradients.zeros(hidden_ND, weight_VD, bias_V, needed)
        sums = []
        for at in spans(len(scored), loss.chunk):
            logits_CV = make_logits(hidden_ND[at], weight_VD, bias_V, rule)
            slope = None if rule.is_plain or not learns else rule.slope(logits_CV)
            tokens = scored.chunk(at, logits_CV.dtype)
            values, gradient_CV = loss(logits_CV, tokens, learns=learns)
            sums.append(add_up(values, tokens))
            if gradient_CV is not None:
                raw_CV = gradient_CV if slope is None else gradient_CV.mul_(slope)
                gradients.add(raw_CV, hidden_ND[at], weight_VD)
                del raw_CV
            del logits_CV, gradient_CV, slope  # or two chunks would exist at a time
        ctx.gradients = gradients
        total, parts = torch.stack(sums).sum(0).split([1, len(loss.names)])
        ctx.mark_non_differentiable(parts)
        return total.squeeze(0), parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # they were scaled in place: keeping them would double the largest tensor of the step
            raise RuntimeError("a sum of token losses can go backward once; use target_logprobs where it must go twice")
        return (*gradients.scaled(grad), None, None, None)


def _gradient(logits_CV: Tensor, normalizer_C: Tensor, targets_C: Tensor, rule: LogitRule) -> Tensor:
    """d log softmax(logits)[target] / d raw = (onehot - softmax) * slope.  Overwrites the logits."""
    slope = rule.slope(logits_CV)
    onehot_minus_softmax_CV = logits_CV.sub_(normalizer_C[:, None]).exp_().neg_()
    ones_C1 = torch.ones_like(normalizer_C)[:, None]
    return onehot_minus_softmax_CV.scatter_add_(1, targets_C[:, None], ones_C1).mul_(slope)
