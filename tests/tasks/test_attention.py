"""Documents of a packed row are read as if each were alone."""

import itertools
import re

import pytest
import torch
import torch.nn.attention.varlen
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import create_mask
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import MistralConfig, MistralForCausalLM

from ike_core.errors import TrainingError
from ike_core.layout import Layout, Tree
from ike_tasks import attention, device_attention

FAMILIES = ("llama", "qwen2", "gpt2")
TREES = (Tree(5), Tree(3, (2,)), Tree(4, (3, 2)), Tree(2, (1, 4, 3)), Tree(1))


def positions_of(trees: tuple[Tree, ...]) -> list[int]:
    positions = []
    for tree in trees:
        positions += range(tree.trunk)
        for size in tree.branches:
            positions += range(tree.trunk, tree.trunk + size)
    return positions


def paths_of(trees: tuple[Tree, ...]) -> list[list[int]]:
    """Places in the row that make up each text."""
    paths, start = [], 0
    for tree in trees:
        trunk = list(range(start, start + tree.trunk))
        start += tree.trunk
        if not tree.branches:
            paths.append(trunk)
        for size in tree.branches:
            paths.append(trunk + list(range(start, start + size)))
            start += size
    return paths


def read_packed(model, ids_RT: Tensor, rows: tuple[tuple[Tree, ...], ...]) -> Tensor:
    attention.register()
    model.set_attn_implementation(attention.NAME)
    length = ids_RT.shape[1]
    position_ids = torch.tensor([(positions_of(trees) + [0] * length)[:length] for trees in rows])
    mask = attention.placeholder().expand(len(rows), 1, 1, 1)
    return model(
        input_ids=ids_RT, position_ids=position_ids, attention_mask=mask, layout=Layout(rows), use_cache=False
    ).logits


def gradients(model) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_reads_as_its_paths_read_apart(family, new_model, copy_of, logits_alone) -> None:
    model = new_model(family)
    reference = copy_of(model)
    rows = (TREES, TREES[::-1])  # two rows, and what is left of them is filler
    length = sum(tree.size for tree in TREES) + 3
    torch.manual_seed(1)
    ids_RT = torch.randint(3, 64, (2, length))
    coefficients = torch.randn(2, length, 64, dtype=torch.float64)

    logits_RTV = read_packed(model, ids_RT, rows)
    wanted = torch.zeros((), dtype=torch.float64)
    seen = torch.zeros(2, length, 1, dtype=torch.float64)
    for row, trees in enumerate(rows):
        for path in paths_of(trees):
            alone = logits_alone(reference, ids_RT[row, path].tolist())
            torch.testing.assert_close(logits_RTV[row, path], alone, rtol=0, atol=1e-12)
            is_new = 1 - seen[row, path]  # a trunk's tokens count once, as they do in the row
            wanted = wanted + (alone * coefficients[row, path] * is_new).sum()
            seen[row, path] = 1.0
    (logits_RTV * coefficients * seen).sum().backward()
    wanted.backward()
    for name, gradient in gradients(reference).items():
        torch.testing.assert_close(gradients(model)[name], gradient, rtol=1e-12, atol=1e-11)


def test_packed_loss_is_the_sum_of_the_losses_apart(new_model, copy_of, logits_alone) -> None:
    model = new_model()
    reference, concatenated = copy_of(model), copy_of(model)
    a, b = [1, 2, 3], [4, 5, 6, 7, 8]
    logits_TV = read_packed(model, torch.tensor([a + b]), ((Tree(3), Tree(5)),))[0]
    packed = cross_entropy(logits_TV[[0, 1, 3, 4, 5, 6]], torch.tensor([2, 3, 5, 6, 7, 8]), reduction="sum")
    apart = sum(
        cross_entropy(logits_alone(reference, tokens)[:-1], torch.tensor(tokens[1:]), reduction="sum")
        for tokens in (a, b)
    )
    assert packed.item() == pytest.approx(apart.item(), abs=1e-12)
    packed.backward()
    apart.backward()
    for name, gradient in gradients(reference).items():
        torch.testing.assert_close(gradients(model)[name], gradient, rtol=1e-12, atol=1e-12)
    # the control: without the layout the second document would see the first
    leaked = logits_alone(concatenated, a + b)
    assert (leaked[3:] - logits_TV[3:]).abs().max() > 1e-3


def test_tokens_of_one_document_do_not_change_what_another_says(new_model) -> None:
    model = new_model()
    trees = ((Tree(3), Tree(2, (2, 3))),)
    before = read_packed(model, torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]), trees)
    other_document = read_packed(model, torch.tensor([[9, 8, 7, 4, 5, 6, 7, 8, 9, 10]]), trees)
    assert (before - other_document)[0, 3:].abs().max().item() == 0.0
    other_branch = read_packed(model, torch.tensor([[1, 2, 3, 4, 5, 60, 61, 8, 9, 10]]), trees)
    assert (before - other_branch)[0, 7:].abs().max().item() == 0.0
    assert (before - other_branch)[0, 5:7].abs().max().item() > 1e-3


@pytest.mark.parametrize("tree", [Tree(0, (3, 2)), Tree(3, (0, 2)), Tree(3, (2, 0)), Tree(3, (0,))])
def test_trunks_and_branches_may_be_empty(tree, new_model, copy_of, logits_alone) -> None:
    model = new_model()
    reference = copy_of(model)
    ids = list(range(10, 10 + tree.size))
    logits = read_packed(model, torch.tensor([ids]), ((tree,),))[0]
    for path in paths_of((tree,)):
        torch.testing.assert_close(logits[path], logits_alone(reference, [ids[i] for i in path]), rtol=0, atol=1e-12)


def test_recomputed_blocks_see_the_layout(new_model, copy_of) -> None:
    plain = new_model()
    recomputing = copy_of(plain)
    recomputing.activation_checkpointing_enable({"use_reentrant": False})
    ids = torch.arange(3, 3 + sum(tree.size for tree in TREES))[None]
    for model in (plain, recomputing):
        model.train()
        read_packed(model, ids, (TREES,)).pow(2).sum().backward()
    for name, gradient in gradients(plain).items():
        torch.testing.assert_close(gradients(recomputing)[name], gradient, rtol=1e-12, atol=1e-12)


def test_without_a_layout_padded_rows_read_as_under_sdpa(new_model, copy_of) -> None:
    model = new_model()
    reference = copy_of(model)
    attention.register()
    model.set_attn_implementation(attention.NAME)
    inputs = {
        "input_ids": torch.tensor([[0, 0, 5, 6, 7], [3, 4, 5, 6, 7]]),
        "attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1] * 5]),
    }
    assert torch.equal(model(**inputs).logits[0, 2:], reference(**inputs).logits[0, 2:])
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(**inputs, **options), reference.generate(**inputs, **options))


def one_call(layout: Layout, *, mask: Tensor | None = None, **said) -> Tensor:
    query = torch.randn(1, 2, sum(tree.size for tree in layout.rows[0]), 4)
    return attention.tree_attention(torch.nn.Linear(1, 1), query, query, query, mask, layout=layout, **said)[0]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"softcap": 50.0}, "caps the scores"),
        ({"s_aux": torch.zeros(2)}, "sinks"),
        ({"sliding_window": 6}, "window of 6 tokens is shorter than a document of 7"),
        ({"mask": torch.zeros(1, 1, 9, 9)}, "mask of its own, [1, 1, 9, 9]"),
    ],
)
def test_what_it_can_not_do_it_refuses(said, reason) -> None:
    layout = Layout(((Tree(5, (1, 2)), Tree(1)),))  # the longest path is 5 + 2
    with pytest.raises(TrainingError, match=re.escape(reason)):
        one_call(layout, **said)
    with attention.witnessed() as witness:
        output = one_call(layout, **said)
    assert output.shape == (1, 9, 2, 4)
    assert reason in witness.refusals[0]


def test_a_window_that_every_document_fits_is_no_window(logits_alone, copy_of) -> None:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = MistralConfig(vocab_size=64, num_key_value_heads=2, sliding_window=7, **shape)
    model = MistralForCausalLM(config).double().eval()
    reference = copy_of(model)
    ids = list(range(3, 17))
    logits = read_packed(model, torch.tensor([ids]), ((Tree(7), Tree(7)),))[0]
    torch.testing.assert_close(logits[7:], logits_alone(reference, ids[7:]), rtol=1e-5, atol=1e-5)


# -- the kernels of a GPU, as far as a CPU can tell ---------------------------------------------------------------


def sees_by_hand(trees: tuple[Tree, ...], length: int) -> Tensor:
    mask = torch.zeros(length, length, dtype=torch.bool)
    for path in paths_of(trees):
        for query, key in itertools.combinations_with_replacement(path[::-1], 2):
            mask[query, key] = True
    return mask


def test_the_block_mask_shows_a_token_its_own_path() -> None:
    length = sum(tree.size for tree in TREES) + 2
    places = device_attention.token_places(Layout((TREES, TREES[::-1])), length, torch.device("cpu"))
    mask = create_mask(device_attention.sees(*places), 2, 1, length, length, device="cpu")
    filled = length - 2
    for row, trees in enumerate((TREES, TREES[::-1])):
        assert torch.equal(mask[row, 0, :filled, :filled], sees_by_hand(trees, length)[:filled, :filled])
        assert mask[row, 0, filled:, :filled].sum() == mask[row, 0, :filled, filled:].sum() == 0


def test_attention_by_segments_is_attention_by_the_block_mask() -> None:
    torch.manual_seed(0)
    length = sum(tree.size for tree in TREES)
    query, key, value = (torch.randn(1, heads, length, 8, dtype=torch.float64) for heads in (4, 2, 2))
    places = device_attention.token_places(Layout((TREES,)), length, torch.device("cpu"))
    mask = create_mask(device_attention.sees(*places), 1, 1, length, length, device="cpu")
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    module = torch.nn.Linear(1, 1)
    got, _ = attention.tree_attention(module, query, key, value, None, layout=Layout((TREES,)))
    torch.testing.assert_close(got.transpose(1, 2), wanted, rtol=0, atol=1e-14)


def test_documents_of_all_rows_lie_end_to_end_for_varlen() -> None:
    layout = Layout(((Tree(3), Tree(4)), (Tree(9),)))
    bounds, longest = device_attention.document_bounds(layout, 9, torch.device("cpu"))
    assert bounds.tolist() == [0, 3, 7, 9, 18]  # the first row's last two tokens are filler
    assert longest == 9


FLAT, BRANCHED = Layout(((Tree(3), Tree(4)),)), Layout(((Tree(3, (2, 2)),),))


@pytest.mark.parametrize(
    ("device", "dtype", "head_size", "layout", "dropout", "kernel"),
    [
        ("cuda", torch.bfloat16, 64, FLAT, 0.0, device_attention.by_varlen),
        ("cuda", torch.float32, 64, FLAT, 0.0, device_attention.by_blocks),
        ("cuda", torch.bfloat16, 512, FLAT, 0.0, device_attention.by_blocks),
        ("cuda", torch.bfloat16, 64, BRANCHED, 0.0, device_attention.by_blocks),
        ("cuda", torch.bfloat16, 64, FLAT, 0.1, None),
        ("cuda", torch.float64, 64, FLAT, 0.0, None),
        ("cuda", torch.bfloat16, 8, BRANCHED, 0.0, None),
        ("cpu", torch.float32, 64, FLAT, 0.0, None),
    ],
)
def test_which_kernel_a_row_goes_to(device, dtype, head_size, layout, dropout, kernel) -> None:
    with FakeTensorMode():
        query = torch.empty(1, 4, 7, head_size, dtype=dtype, device=device)
    assert device_attention.choose(query, layout, dropout=dropout) is kernel


def test_varlen_waits_for_a_torch_that_groups_heads(monkeypatch) -> None:
    with FakeTensorMode():
        query = torch.empty(1, 4, 7, 64, dtype=torch.bfloat16, device="cuda")
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)("2.11.0+cu130"))
    assert device_attention.choose(query, FLAT, dropout=0.0) is device_attention.by_blocks


def test_varlen_is_asked_for_causal_attention_over_documents(monkeypatch) -> None:
    """By the recorded call: the kernel itself runs on a GPU only (tests/gpu)."""
    calls = []

    def varlen_attn(query: Tensor, key: Tensor, *others: object, **said: object) -> Tensor:
        calls.append((query.shape, key.shape, said))
        return query

    monkeypatch.setattr(torch.nn.attention.varlen, "varlen_attn", varlen_attn)
    query, key = torch.randn(2, 4, 9, 16), torch.randn(2, 2, 9, 16)
    output = device_attention.by_varlen(query, key, key, Layout(((Tree(9),), (Tree(4),))), scale=0.5)
    assert torch.equal(output, query)
    assert calls == [((18, 4, 16), (18, 2, 16), {"scale": 0.5, "window_size": (-1, 0), "enable_gqa": True})]
