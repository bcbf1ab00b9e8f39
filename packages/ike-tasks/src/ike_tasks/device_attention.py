"""Attention over packed rows on a GPU: a kernel for all documents at once.

R rows, T tokens of a row, H query heads, K key heads, D head size.

Flat rows in half precision go to torch's own varlen attention (from torch 2.12 on, which groups heads), all others
(trees, float32) to FlexAttention. Both take index tensors that follow from the layout alone; they are made once a
forward and shared by all layers.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

from ike_core.layout import Layout


class Kernel(Protocol):
    """[R, H, T, D], [R, K, T, D], [R, K, T, D] -> [R, H, T, D]"""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, scale: float | None) -> Tensor: ...


def choose(query: Tensor, layout: Layout, *, dropout: float) -> Kernel | None:
    """The kernel for these rows; None where there is none: on a CPU, in float64, with dropout, and for tiny heads."""
    head_size = query.shape[3]
    if query.device.type != "cuda" or query.dtype == torch.float64 or dropout or head_size < 16:
        return None
    is_flat = not any(tree.branches for row in layout.rows for tree in row)
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    if not is_flat or not is_half or torch.__version__ < "2.12":  # compares as versions do
        return by_blocks
    return by_varlen if head_size % 8 == 0 and head_size <= 256 else by_blocks


def by_varlen(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, scale: float | None) -> Tensor:
    """Rows without branches, end to end as one sequence of documents."""
    from torch.nn.attention.varlen import varlen_attn  # newer than the oldest torch that the CPU road needs

    rows, heads, length, _ = query.shape
    bounds, longest = document_bounds(layout, length, query.device)
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    attend = varlen_attn if key.shape[1] == heads else partial(varlen_attn, enable_gqa=True)
    flat = attend(q, k, v, bounds, bounds, longest, longest, scale=scale, window_size=(-1, 0))
    assert isinstance(flat, Tensor)  # a pair only where more than the output is asked for
    return flat.view(rows, length, heads, -1).transpose(1, 2)


def by_blocks(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, scale: float | None) -> Tensor:
    """Trees, by a mask over blocks of 128 x 128 that skips those in which nothing is seen."""
    mask = _block_mask(layout, query.shape[2], query.device)
    is_grouped = key.shape[1] != query.shape[1]
    output: Tensor = _flex_attention()(query, key, value, block_mask=mask, scale=scale, enable_gqa=is_grouped)
    return output


@lru_cache(maxsize=2)
def document_bounds(layout: Layout, length: int, device: torch.device) -> tuple[Tensor, int]:
    """Where documents begin in R * length tokens, and the end: [documents + 1] int32; with the longest one's size.

    What is left of a row counts as a document of its own.
    """
    sizes = []
    for row in layout.rows:
        sizes += [tree.size for tree in row]
        filler = length - sum(tree.size for tree in row)
        sizes += [filler] if filler else []
    return _to_device(list(accumulate(sizes, initial=0)), device), max(sizes)


@lru_cache(maxsize=2)
def token_places(layout: Layout, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of every token, its tree and its branch there (0: the trunk): [R, T] int32 each. Filler is a tree of its own."""
    tree_RT: list[list[int]] = []
    branch_RT: list[list[int]] = []
    for row in layout.rows:
        trees, branches = [], []
        for number, tree in enumerate(row):
            trees += [number] * tree.size
            branches += [0] * tree.trunk
            for branch, size in enumerate(tree.branches, start=1):
                branches += [branch] * size
        filler = length - len(trees)
        tree_RT.append(trees + [len(row)] * filler)
        branch_RT.append(branches + [0] * filler)
    return _to_device(tree_RT, device), _to_device(branch_RT, device)


def sees(tree_RT: Tensor, branch_RT: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """FlexAttention's `mask_mod`: what comes before in the same tree, in the trunk or in the own branch."""

    def mask(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        same_tree = tree_RT[row, query] == tree_RT[row, key]
        same_branch = (branch_RT[row, key] == 0) | (branch_RT[row, key] == branch_RT[row, query])
        return (query >= key) & same_tree & same_branch

    return mask


@lru_cache(maxsize=2)
def _block_mask(layout: Layout, length: int, device: torch.device) -> Any:
    mask = sees(*token_places(layout, length, device))
    return _create_block_mask()(mask, len(layout.rows), None, length, length, device=str(device))


@lru_cache(maxsize=1)
def _create_block_mask() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import create_block_mask  # 1 s of imports that the CPU road has no use for

    return torch.compile(create_block_mask)  # otherwise it makes the whole T x T mask first


@lru_cache(maxsize=1)
def _flex_attention() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _to_device(values: list[Any], device: torch.device) -> Tensor:
    """Through pinned memory: a copy from ordinary memory would make the host wait for the device."""
    tensor = torch.tensor(values, dtype=torch.int32, pin_memory=device.type == "cuda")
    return tensor.to(device, non_blocking=True)
