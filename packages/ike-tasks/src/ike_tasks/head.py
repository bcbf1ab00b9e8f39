"""The output layer that scores: log-probabilities of given tokens, without full logits.

N scored tokens, C tokens of a chunk, V vocabulary, D hidden size.

Logits exist for one chunk at a time. All chunks stand inside one call of the module, since ZeRO-3 gathers a weight a
call: a loop over calls would make the number of collectives depend on the data.
"""

from collections.abc import Iterator
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

CHUNK = 512
"""Tokens whose logits exist at a time: at 49152 ids 96 MiB in float32; 256 to 1024 are equally fast."""


@attrs.frozen
class LogitRule:
    """What a model does to raw logits: cap * tanh(scale * raw / cap)."""

    scale: float = 1.0
    cap: float | None = None

    def apply_(self, raw: Tensor) -> Tensor:
        """In place."""
        if self.scale != 1.0:
            raw.mul_(self.scale)
        return raw if self.cap is None else raw.div_(self.cap).tanh_().mul_(self.cap)

    def slope(self, logits: Tensor) -> Tensor | float:
        """d logits / d raw, from the logits."""
        if self.cap is None:
            return self.scale
        return (1 - (logits / self.cap) ** 2).mul_(self.scale)


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

    def forward(self, hidden: Tensor, targets: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """[..., D] -> [..., V].  With targets [N]: [N, D] -> log-probabilities [N], float32 (float64 stays float64).

        With weights [N] too: -> [], the sum of weight * log-probability, whose gradient is made here and now.
        """
        if targets is None:
            return super().forward(hidden)
        layer: tuple[Tensor, Tensor, Tensor | None] = (hidden, self.weight, self.bias)
        if not torch.is_grad_enabled():  # a Function is asked for gradients all the same
            layer = (hidden.detach(), self.weight.detach(), None if self.bias is None else self.bias.detach())
        if weights is None:
            scores: Tensor = _LogProbs.apply(*layer, targets, self.rule)  # type: ignore[no-untyped-call]
        else:
            scores = _WeightedSum.apply(*layer, targets, weights, self.rule)  # type: ignore[no-untyped-call]
        return scores


class _LogProbs(torch.autograd.Function):
    """Any loss over log-probabilities. The chunks are computed again in the backward, unless the head is frozen."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, rule: LogitRule
    ) -> Tensor:
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        keeps_rows = needs_hidden and not (needs_weight or needs_bias)
        logp, normalizers, rows = [], [], []
        for hidden_CD, targets_C in _chunks(hidden_ND, targets_N):
            logits_CV = _logits(hidden_CD, weight_VD, bias_V, rule)
            normalizer_C = logits_CV.logsumexp(1)
            logp.append(_pick(logits_CV, targets_C) - normalizer_C)
            normalizers.append(normalizer_C)
            if keeps_rows:  # d logp / d hidden is known up to one factor a row: nothing is left to recompute
                rows.append(_gradient(logits_CV, normalizer_C, targets_C, rule).to(weight_VD.dtype) @ weight_VD)
            del logits_CV  # or two chunks would exist at a time
        ctx.rule, ctx.keeps_rows = rule, keeps_rows
        if keeps_rows:
            ctx.save_for_backward(torch.cat(rows))
        elif needs_weight or needs_bias:
            ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, torch.cat(normalizers))
        return torch.cat(logp)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        if ctx.keeps_rows:
            (rows_ND,) = ctx.saved_tensors
            return rows_ND * grad_N[:, None].to(rows_ND.dtype), None, None, None, None
        hidden_ND, weight_VD, bias_V, targets_N, normalizer_N = ctx.saved_tensors
        sums = _Gradients.zeros(hidden_ND, weight_VD, bias_V, ctx.needs_input_grad)
        for hidden_CD, targets_C, normalizer_C, grad_C in _chunks(hidden_ND, targets_N, normalizer_N, grad_N):
            logits_CV = _logits(hidden_CD, weight_VD, bias_V, ctx.rule)
            gradient_CV = _gradient(logits_CV, normalizer_C, targets_C, ctx.rule).mul_(grad_C[:, None])
            sums.add(gradient_CV, hidden_CD, weight_VD)
            del logits_CV, gradient_CV
        return (*sums.scaled(None), None, None)


class _WeightedSum(torch.autograd.Function):
    """Losses that are linear in log-probabilities: the gradient is known up to one factor before the backward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        weights_N: Tensor,
        rule: LogitRule,
    ) -> Tensor:
        needed = ctx.needs_input_grad
        sums = _Gradients.zeros(hidden_ND, weight_VD, bias_V, needed)
        total = torch.zeros((), dtype=_wide(weight_VD), device=hidden_ND.device)
        for hidden_CD, targets_C, weights_C in _chunks(hidden_ND, targets_N, weights_N.to(total.dtype)):
            logits_CV = _logits(hidden_CD, weight_VD, bias_V, rule)
            normalizer_C = logits_CV.logsumexp(1)
            total += ((_pick(logits_CV, targets_C) - normalizer_C) * weights_C).sum()
            if any(needed[:3]):
                gradient_CV = _gradient(logits_CV, normalizer_C, targets_C, rule).mul_(weights_C[:, None])
                sums.add(gradient_CV, hidden_CD, weight_VD)
                del gradient_CV
            del logits_CV
        ctx.sums = sums
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None]:
        sums, ctx.sums = ctx.sums, None
        if sums is None:  # they were scaled in place: keeping them would double the largest tensor of the step
            raise RuntimeError("a weighted sum can go backward once; use target_logprobs where it must go twice")
        return (*sums.scaled(grad), None, None, None)


@attrs.define
class _Gradients:
    """Sums over chunks, the weight's in float32 at least."""

    hidden: list[Tensor] | None
    weight: Tensor | None
    bias: Tensor | None
    dtypes: tuple[torch.dtype, torch.dtype]
    """Of weight and bias."""

    @classmethod
    def zeros(cls, hidden: Tensor, weight: Tensor, bias: Tensor | None, needed: tuple[bool, ...]) -> "_Gradients":
        wide, device = _wide(weight), hidden.device
        return cls(
            hidden=[] if needed[0] else None,
            weight=torch.zeros(weight.shape, dtype=wide, device=device) if needed[1] else None,
            bias=torch.zeros(bias.shape, dtype=wide, device=device) if bias is not None and needed[2] else None,
            dtypes=(weight.dtype, weight.dtype if bias is None else bias.dtype),
        )

    def add(self, raw_CV: Tensor, hidden_CD: Tensor, weight_VD: Tensor) -> None:
        """One chunk's gradient with respect to the raw logits."""
        if self.bias is not None:
            self.bias += raw_CV.sum(0)
        raw_CV = raw_CV.to(weight_VD.dtype)
        if self.hidden is not None:
            self.hidden.append(raw_CV @ weight_VD)
        if self.weight is not None and self.weight.dtype == hidden_CD.dtype:
            self.weight.addmm_(raw_CV.T, hidden_CD)
        elif self.weight is not None:
            self.weight += raw_CV.T @ hidden_CD

    def scaled(self, factor: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Times the factor, in place, in the dtypes of what they are the gradients of."""
        hidden = None if self.hidden is None else torch.cat(self.hidden)
        if factor is not None:
            for tensor in (hidden, self.weight, self.bias):
                if tensor is not None:
                    tensor.mul_(factor)
        weight = None if self.weight is None else self.weight.to(self.dtypes[0])
        return hidden, weight, None if self.bias is None else self.bias.to(self.dtypes[1])


def _wide(weight: Tensor) -> torch.dtype:
    return torch.promote_types(weight.dtype, torch.float32)


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """At least one, which is empty where there are no tokens: filler takes the same road."""
    return zip(*(tensor.split(CHUNK) for tensor in tensors), strict=True)


def _logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, rule: LogitRule) -> Tensor:
    """The product in the weight's dtype, the rest in float32 at least.  -> [C, V], ours to overwrite"""
    return rule.apply_(linear(hidden_CD, weight_VD, bias_V).to(_wide(weight_VD)))


def _pick(logits_CV: Tensor, targets_C: Tensor) -> Tensor:
    return logits_CV.gather(1, targets_C[:, None]).squeeze(1)


def _gradient(logits_CV: Tensor, normalizer_C: Tensor, targets_C: Tensor, rule: LogitRule) -> Tensor:
    """d log softmax(logits)[target] / d raw = (onehot - softmax) * slope.  Overwrites the logits."""
    slope = rule.slope(logits_CV)
    onehot_minus_softmax_CV = logits_CV.sub_(normalizer_C[:, None]).exp_().neg_()
    ones_C1 = torch.ones_like(normalizer_C)[:, None]
    return onehot_minus_softmax_CV.scatter_add_(1, targets_C[:, None], ones_C1).mul_(slope)
