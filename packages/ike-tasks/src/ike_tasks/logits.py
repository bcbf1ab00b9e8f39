"""Logits of some tokens, a chunk at a time.

N tokens, C tokens of a chunk, V vocabulary, D hidden size.
"""

from collections.abc import Iterator
from typing import Protocol

import attrs
import torch
from torch import Tensor
from torch.nn.functional import linear

CHUNK = 512
"""Tokens whose logits exist at a time: at 49152 ids 96 MiB in float32; 256 to 1024 are equally fast."""


@attrs.frozen
class LogitRule:
    """What a model does to raw logits: cap * tanh(scale * raw / cap)."""

    scale: float = 1.0
    cap: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing."""
        return self.scale == 1.0 and self.cap is None

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


def wide(tensor: Tensor) -> torch.dtype:
    """What is summed in: float32 at least."""
    return torch.promote_types(tensor.dtype, torch.float32)


def make_logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, rule: LogitRule) -> Tensor:
    """The product in the weight's dtype, the rest in float32 at least.  -> [C, V], the caller's to overwrite"""
    return rule.apply_(linear(hidden_CD, weight_VD, bias_V).to(wide(weight_VD)))


def pick(logits_CV: Tensor, targets_C: Tensor) -> Tensor:
    """-> [C]"""
    return logits_CV.gather(1, targets_C[:, None]).squeeze(1)


def softmax_(logits_CV: Tensor) -> Tensor:
    """Overwrites logits by their softmax; returns their logsumexp, [C]. One exponential, no second [C, V]."""
    largest_C1 = logits_CV.amax(1, keepdim=True)
    sum_C1 = logits_CV.sub_(largest_C1).exp_().sum(1, keepdim=True)
    logits_CV.div_(sum_C1)
    return (largest_C1 + sum_C1.log()).squeeze(1)


def spans(count: int, chunk: int) -> Iterator[slice]:
    """At least one, which is empty where there are no tokens: filler takes the same road."""
    for start in range(0, max(count, 1), chunk):
        yield slice(start, min(start + chunk, count))


class LogitSource(Protocol):
    """Logits [N, V] that are made when they are asked for."""

    def __call__(self, at: slice) -> Tensor:
        """[C, V], the caller's to overwrite."""
        ...


@attrs.frozen
class HeadLogits:
    """By a head, from hidden states; nothing learns."""

    hidden: Tensor
    """[N, D]"""
    weight: Tensor
    """[V, D]"""
    bias: Tensor | None
    """[V]"""
    rule: LogitRule

    def __call__(self, at: slice) -> Tensor:
        return make_logits(self.hidden[at], self.weight, self.bias, self.rule)


@attrs.frozen
class FullLogits:
    """Of a model whose head can't be called alone: they exist whole."""

    logits: Tensor
    """[N, V]"""

    def __call__(self, at: slice) -> Tensor:
        chunk_CV = self.logits[at]
        return chunk_CV.to(wide(chunk_CV), copy=True)
