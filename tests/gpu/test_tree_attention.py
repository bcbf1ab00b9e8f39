"""The kernels of a GPU against attention by segments, forward and backward. About 20 s, most of it compiling."""

import pytest
import torch
from torch import Tensor, nn

from ike_core.layout import Layout, Tree
from ike_tasks import attention, device_attention

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

FLAT = Layout(((Tree(200), Tree(17), Tree(1), Tree(150)),))
BRANCHED = Layout(((Tree(100, (30, 40, 20)), Tree(60), Tree(50, (5,))),))


def run(layout: Layout, dtype: torch.dtype, kernel: device_attention.Kernel | None) -> list[Tensor]:
    """Output and the gradients of query, key and value, over 384 tokens of which the last few are filler."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, heads, 384, 64, device="cuda", dtype=dtype, requires_grad=True) for heads in (8, 2, 2)]
    if kernel is None:
        output = attention._by_segments(*inputs, layout, scale=None, dropout=0.0)
    else:
        output = kernel(*inputs, layout, scale=None)
    filled = sum(tree.size for tree in layout.rows[0])
    weights = torch.randn(1, 8, filled, 64, device="cuda", dtype=dtype)
    (output[:, :, :filled] * weights).sum().backward()
    return [output[:, :, :filled].detach(), *(tensor.grad[:, :, :filled] for tensor in inputs)]


@pytest.mark.parametrize(
    ("layout", "dtype", "tolerance"),
    [(FLAT, torch.bfloat16, 2e-2), (FLAT, torch.float32, 1e-4), (BRANCHED, torch.bfloat16, 2e-2),
     (BRANCHED, torch.float32, 1e-4)],
)  # fmt: skip
def test_a_kernel_does_what_segments_do(layout: Layout, dtype: torch.dtype, tolerance: float) -> None:
    kernel = device_attention.choose(torch.empty(1, 8, 384, 64, device="cuda", dtype=dtype), layout, dropout=0.0)
    assert kernel is not None
    for got, wanted in zip(run(layout, dtype, kernel), run(layout, dtype, None), strict=True):
        error = (got.float() - wanted.float()).abs().max() / wanted.float().abs().max()
        assert error.item() < tolerance


@pytest.mark.parametrize("layout", [FLAT, BRANCHED])
def test_a_kernel_does_not_make_the_host_wait(layout: Layout) -> None:
    query = torch.randn(1, 8, 384, 64, device="cuda", dtype=torch.bfloat16)
    key = query[:, :2].contiguous()

    def once() -> None:
        device_attention.document_bounds.cache_clear()
        device_attention.token_places.cache_clear()
        device_attention._block_mask.cache_clear()
        attention.tree_attention(nn.Identity(), query, key, key, None, layout=layout)

    once()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        once()
    finally:
        torch.cuda.set_sync_debug_mode("default")
