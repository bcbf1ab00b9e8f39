"""Tensors go to disk as they are: every shape of sharing, their own dtype, a shard in memory at most."""

import json
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import load_file

from ike_ckpt import read_weights, write_weights
from ike_core.errors import CheckpointError


def test_one_shard_is_the_file_that_transformers_looks_for(tmp_path) -> None:
    written = write_weights(tmp_path, [("a", torch.arange(6.0)), ("b", torch.tensor([1], dtype=torch.int64))])
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"] == list(written.files)
    assert written.bytes == 6 * 4 + 8
    assert written.dtype == torch.float32


def test_more_shards_get_an_index(tmp_path) -> None:
    tensors = {f"layer.{i}": torch.full((10,), float(i)) for i in range(5)}  # 40 bytes each: two fit into 100
    write_weights(tmp_path, tensors.items(), shard_bytes=100)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 5 * 40
    files = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert index["weight_map"] == {
        "layer.0": files[0], "layer.1": files[0], "layer.2": files[1], "layer.3": files[1], "layer.4": files[2]
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == files
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in read_weights(tmp_path).items())


def test_a_tensor_larger_than_a_shard_has_one_of_its_own(tmp_path) -> None:
    sizes = {"first": 100, "small": 4, "large": 100, "last": 4}
    write_weights(tmp_path, ((name, torch.zeros(size)) for name, size in sizes.items()), shard_bytes=64)
    per_file = [list(load_file(path)) for path in sorted(tmp_path.glob("*.safetensors"))]
    assert per_file == [["first"], ["small"], ["large"], ["last"]]


def test_a_full_shard_is_on_disk_before_the_next_tensor_is_asked_for(tmp_path) -> None:
    on_disk = []

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        for number in range(4):
            on_disk.append(sum(path.stat().st_size > 80 for path in tmp_path.iterdir()))
            yield f"t{number}", torch.zeros(20)  # 80 bytes: one a shard

    write_weights(tmp_path, tensors(), shard_bytes=80)
    assert on_disk == [0, 0, 1, 2]  # the one in hand and the open shard are all that is held


def test_what_is_given_may_be_overwritten_in_the_next_turn(tmp_path) -> None:
    buffer = torch.empty(8)

    def gathered() -> Iterator[tuple[str, torch.Tensor]]:
        for value in (1.0, 2.0, 3.0):
            yield f"p{value:.0f}", buffer.fill_(value)
        buffer.fill_(-1.0)

    write_weights(tmp_path, gathered())
    assert {name: tensor.tolist() for name, tensor in read_weights(tmp_path).items()} == {
        "p1": [1.0] * 8, "p2": [2.0] * 8, "p3": [3.0] * 8
    }  # fmt: skip


def test_views_shared_storage_and_strides_are_written_by_value(tmp_path) -> None:
    """Case B83: save_file itself raises for all of these."""
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"base": base, "view": base[1], "transposed": base.T, "expanded": torch.tensor([7.0]).expand(5)}
    write_weights(tmp_path, tensors.items())
    read = read_weights(tmp_path)
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_gradients_and_graphs_stay_behind(tmp_path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    write_weights(tmp_path, [("weight", weight), ("twice", 2 * weight)])
    assert read_weights(tmp_path)["twice"].tolist() == [2.0] * 3


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype) -> None:
    tensor = (torch.randn(50) * 100).to(dtype)
    write_weights(tmp_path, [("t", tensor)])
    read = read_weights(tmp_path)["t"]
    assert read.dtype == dtype
    assert torch.equal(read, tensor)


def test_the_dtype_is_that_of_most_bytes(tmp_path) -> None:
    """A bf16 model keeps a float32 buffer or two; integers don't count."""
    tensors = [
        ("rotary", torch.zeros(8)),
        ("weight", torch.zeros(100, dtype=torch.bfloat16)),
        ("ids", torch.zeros(10**3, dtype=torch.int64)),
    ]
    assert write_weights(tmp_path, tensors).dtype == torch.bfloat16


def test_a_tied_name_is_written_once_and_read_under_both(tmp_path) -> None:
    write_weights(tmp_path, [("embed", torch.ones(100))], tied={"head": "embed"})
    assert list(load_file(tmp_path / "model.safetensors")) == ["embed"]
    read = read_weights(tmp_path)
    assert read["head"] is read["embed"]


def test_a_placeholder_fails_the_save(tmp_path) -> None:
    """Case B89: under ZeRO-3 a parameter that nobody gathered has no values."""
    with pytest.raises(CheckpointError, match=r"layer\.weight has no values \(shape \[0\]\).*ZeRO-3"):
        write_weights(tmp_path, [("fine", torch.ones(2)), ("layer.weight", torch.empty(0))])


def test_nothing_at_all_and_a_name_twice_are_refused(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="no weights"):
        write_weights(tmp_path, [])
    with pytest.raises(CheckpointError, match="a came twice"):
        write_weights(tmp_path, [("a", torch.ones(2)), ("a", torch.ones(2))])


@pytest.mark.parametrize("change", [-8, 8, "empty"])
def test_a_damaged_file_is_named(tmp_path, change) -> None:
    write_weights(tmp_path, [("a", torch.ones(100))])
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(b"" if change == "empty" else content[:change] if change < 0 else content + bytes(change))
    with pytest.raises(CheckpointError, match=r"model\.safetensors can't be read"):
        read_weights(tmp_path)


def test_a_missing_shard_and_a_broken_index_are_named(tmp_path) -> None:
    write_weights(tmp_path, [("a", torch.ones(4)), ("b", torch.ones(4))], shard_bytes=16)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="model-00002-of-00002"):
        read_weights(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(CheckpointError, match="is not an index"):
        read_weights(tmp_path)


def test_a_weight_that_is_meant_to_be_empty_is_kept(tmp_path) -> None:
    write_weights(tmp_path, [("none", torch.empty(0, 4)), ("some", torch.ones(2))])
    read = read_weights(tmp_path)
    assert read["none"].shape == (0, 4)
    assert read["some"].tolist() == [1.0, 1.0]
