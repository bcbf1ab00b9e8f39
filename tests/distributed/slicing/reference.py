"""The yardstick: one process, float64, plain PyTorch, every example alone in a forward of its own, full logits.

Nothing of ike is imported here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM


@attrs.frozen
class Reference:
    """What each step should have done."""

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    start: dict[str, Tensor]
    end: dict[str, Tensor]


def answer_logprob(model: nn.Module, row: dict[str, Any]) -> Tensor:
    """Sum of log p over the learned tokens that have a predecessor, []."""
    tokens = torch.tensor([row["tokens"]])
    logp = model(input_ids=tokens).logits[0].log_softmax(-1)
    learned = [t for t in range(1, len(row["tokens"])) if row["learned"][t]]
    return sum(logp[t - 1, row["tokens"][t]] for t in learned)


def step_loss(objective: str, model: nn.Module, rows: Sequence[dict[str, Any]]) -> Tensor:
    """Over the whole step at once: the definition that every cut must meet."""
    tokens = sum(sum(row["learned"][1:]) for row in rows)
    sums = torch.stack([answer_logprob(model, row) for row in rows])
    match objective:
        case "sft" | "plain":
            return -sums.sum() / tokens
        case "two":
            return -sums.sum() / tokens + 0.5 * (sums / 100).square().mean()
        case "spread":
            return (sums / 100).var(unbiased=False)
    raise ValueError(objective)


def train(model_path: Path, rows: Sequence[dict[str, Any]], objective: str, optimizer: str, steps: int) -> Reference:
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64, attn_implementation="sdpa")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    made = (
        torch.optim.SGD(parameters, lr=0.1)
        if optimizer == "sgd"
        else torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)
    )
    start = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    losses, norms = [], []
    for _ in range(steps):
        loss = step_loss(objective, model, rows)
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.cat([p.grad.flatten() for p in parameters]).norm().item())
        made.step()
        made.zero_grad()
    return Reference(tuple(losses), tuple(norms), start, {n: t.detach().clone() for n, t in model.named_parameters()})
