"""Attention over packed rows: documents never see each other, branches see their trunk and themselves.

R rows, T tokens of a row, H query heads, K key heads, D head size.

`register()` makes transformers know the name NAME. A model that uses it reads packed rows where its forward is given
`layout=` (an `ike_core.layout.Layout`), and everything else, generation included, as under sdpa. The layout travels as
a keyword since it must reach the recomputation of activation checkpointing, which runs in the backward: there a
context variable would be gone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ike_core.errors import TrainingError
from ike_core.layout import Layout, Tree
from ike_tasks import device_attention

NAME = "ike_trees"


@attrs.define
class Witness:
    """What the attention function saw during one forward pass."""

    layers: set[int] = attrs.field(factory=set)
    """The modules (by id) that were called with a layout."""
    refusals: list[str] = attrs.field(factory=list)
    """Why a call could not be done."""


_witness: ContextVar[Witness | None] = ContextVar("ike_tasks_witness", default=None)


@contextmanager
def witnessed() -> Iterator[Witness]:
    """Within it, refusals are noted, not raised: under ZeRO-3 a forward that breaks off leaves weights gathered."""
    witness = Witness()
    token = _witness.set(witness)
    try:
        yield witness
    finally:
        _witness.reset(token)


def placeholder() -> Tensor:
    """The `attention_mask` of packed rows: transformers hands a 4-D mask on as it is and builds none of its own.

    Given none it would make a dense T x T mask out of the positions.
    """
    return torch.zeros(1, 1, 1, 1)


def register() -> None:
    """Makes NAME known to transformers. Any number of times."""
    AttentionInterface.register(NAME, tree_attention)
    # A name without a mask function gets no mask at all: padded generation would then be wrong in silence.
    AttentionMaskInterface.register(NAME, sdpa_mask)


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: Layout | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,  # transformers hands every attention function whatever its models know
) -> tuple[Tensor, None]:
    """[R, H, T, D], [R, K, T, D], [R, K, T, D] -> [R, T, H, D].  Without a layout: transformers' own sdpa."""
    if layout is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, softcap=softcap, **others
        )
    refusal = _refusal(layout, attention_mask, sliding_window, has_cap=softcap is not None, has_sink=s_aux is not None)
    witness = _witness.get()
    if witness is not None:
        witness.layers.add(id(module))
    if refusal and witness is None:
        raise TrainingError(f"{type(module).__name__} can't read packed rows: {refusal}; set batch.packing = 'off'")
    if refusal and witness is not None:
        witness.refusals.append(refusal)
        return torch.zeros_like(query).transpose(1, 2), None
    kernel = device_attention.choose(query, layout, dropout=dropout)
    if kernel is None:
        output = _by_segments(query, key, value, layout, scale=scaling, dropout=dropout)
    else:
        output = kernel(query, key, value, layout, scale=scaling)
    return output.transpose(1, 2).contiguous(), None


def _refusal(
    layout: Layout, attention_mask: Tensor | None, sliding_window: int | None, *, has_cap: bool, has_sink: bool
) -> str:
    """Why this call can't be done by segments; '' where it can."""
    if has_cap:
        return "its attention caps the scores (softcap)"
    if has_sink:
        return "its attention has sinks"
    if sliding_window is not None and layout.longest_path > sliding_window:
        return f"its attention window of {sliding_window} tokens is shorter than a document of {layout.longest_path}"
    if attention_mask is not None and attention_mask.numel() > len(layout.rows):
        return f"it made an attention mask of its own, {list(attention_mask.shape)}"
    return ""


def _by_segments(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, scale: float | None, dropout: float
) -> Tensor:
    """One causal call a trunk with its first branch, one rectangular call a further branch.  -> [R, H, T, D]"""
    rows = [
        _row_by_segments(query[r : r + 1], key[r : r + 1], value[r : r + 1], trees, scale=scale, dropout=dropout)
        for r, trees in enumerate(layout.rows)
    ]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _row_by_segments(
    query: Tensor, key: Tensor, value: Tensor, trees: tuple[Tree, ...], *, scale: float | None, dropout: float
) -> Tensor:
    def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None) -> Tensor:
        return scaled_dot_product_attention(
            q, k, v, attn_mask=seen, is_causal=seen is None, dropout_p=dropout, scale=scale, enable_gqa=is_grouped
        )

    is_grouped = key.shape[1] != query.shape[1]
    # Split, not slice: its backward is one concatenation, a slice's is a full-size gradient (4x over 128 documents).
    sizes = [size for tree in trees for size in (tree.trunk + sum(tree.branches[:1]), *tree.branches[1:])]
    filler = query.shape[2] - sum(sizes)
    queries, keys, values = (iter(x.split([*sizes, filler], dim=2)) for x in (query, key, value))
    outputs = []
    for tree in trees:
        k, v = next(keys), next(values)
        outputs.append(attend(next(queries), k, v))
        k, v = k[:, :, : tree.trunk], v[:, :, : tree.trunk]
        for size in tree.branches[1:]:
            # is_causal aligns at the top left, where a branch must see its whole trunk
            seen = torch.ones(size, tree.trunk + size, dtype=torch.bool, device=query.device).tril(tree.trunk)
            outputs.append(attend(next(queries), torch.cat([k, next(keys)], 2), torch.cat([v, next(values)], 2), seen))
    outputs.append(next(values).new_zeros(1, query.shape[1], filler, value.shape[3]))
    return torch.cat(outputs, 2)
