"""`state/`: what trains a model, in pieces that any layout takes up."""

import json
from array import array
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from ike_ckpt.fragment_file import write_fragments
from ike_ckpt.loading import load_step
from ike_ckpt.rank_state import write_rank
from ike_ckpt.ranks import ScriptRanks
from ike_ckpt.state_reader import StateReader
from ike_ckpt.steps import StepContents, write_step
from ike_core.errors import CheckpointError
from ike_core.fragments import BUFFER, FROZEN, WEIGHT, Fragment
from ike_core.interfaces import SavedState
from ike_core.runtime.pieces import whole_pieces, whole_stills
from ike_core.runtime.training_state import TrainingState

PROGRESS = {"step": 3, "epoch": 0.5, "examples": 9, "tokens": 90, "supervised_tokens": 9.0, "skipped": 0}


class Net(nn.Module):
    """Two parameters that learn, one that doesn't, and a buffer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3, bias=False)
        self.first.bias.requires_grad_(False)
        self.register_buffer("seen", torch.full((2,), float(seed)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).tanh())


def optimizer_of(net: Net, kind: type[torch.optim.Optimizer] = torch.optim.AdamW) -> torch.optim.Optimizer:
    return kind([{"params": [net.first.weight]}, {"params": [net.second.weight], "weight_decay": 0.3}], lr=0.05)


def state_of(net: Net, optimizer: torch.optim.Optimizer) -> TrainingState:
    pieces = whole_pieces(net, optimizer)
    stills = whole_stills(net, [piece.name for piece in pieces])
    return TrainingState(pieces=pieces, stills=stills, optimizer=optimizer, rank=0, ranks=1)


def learn(net: Net, optimizer: torch.optim.Optimizer, steps: int) -> None:
    x = torch.linspace(-1, 1, 20).view(4, 5)
    for _ in range(steps):
        net(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def save(folder: Path, state: TrainingState, parts: dict[str, dict[str, object]] | None = None) -> None:
    saved = SavedState(fragments=state.fragments, counters=state.counters, parts=parts or {})
    progress = PROGRESS | {"sources": {}, "final": False}
    write_step(ScriptRanks(), folder, StepContents(state=saved, progress=progress), keep_last=None)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop])
def test_training_goes_on_as_if_it_had_never_stopped(tmp_path, kind) -> None:
    net = Net(seed=1)
    optimizer = optimizer_of(net, kind)
    learn(net, optimizer, 3)
    save(tmp_path / "step-000003", state_of(net, optimizer))
    learn(net, optimizer, 3)

    other = Net(seed=2)
    again = optimizer_of(other, kind)
    loaded = load_step(ScriptRanks(), tmp_path / "step-000003")
    state_of(other, again).restore(loaded.fragments)
    assert loaded.progress.step == 3
    learn(other, again, 3)
    for name, tensor in net.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_what_no_optimizer_holds_is_kept_too(tmp_path) -> None:
    net = Net(seed=1)
    save(tmp_path / "step-000003", state_of(net, optimizer_of(net)))
    reader = StateReader(tmp_path / "step-000003")
    assert (reader.kinds("first.bias"), reader.kinds("seen")) == ((FROZEN,), (BUFFER,))
    assert torch.equal(reader.read("first.bias", FROZEN, 2, 3), net.first.bias[2:5])


def test_a_state_that_is_neither_shaped_like_its_parameter_nor_a_number_is_refused_by_name(tmp_path) -> None:
    """Adafactor keeps a row and a column of a matrix."""
    net = Net(seed=1)
    optimizer = torch.optim.Adafactor(net.second.parameters())
    learn(net, optimizer, 1)
    with pytest.raises(CheckpointError, match=r"Adafactor keeps 'row_var' \(\(3, 1\)\) for second\.weight"):
        save(tmp_path / "step-000003", state_of(net, optimizer))
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused_with_the_names_that_differ(tmp_path) -> None:
    net = Net(seed=1)
    save(tmp_path / "step-000003", state_of(net, optimizer_of(net)))
    other = Net(seed=1)
    other.second = nn.Linear(7, 4, bias=False)
    other.third = nn.Linear(2, 2)
    state = state_of(other, torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(CheckpointError, match=r"second\.weight has shape \(4, 7\); saved is \(3, 7\)") as raised:
        state.restore(load_step(ScriptRanks(), tmp_path / "step-000003").fragments)
    assert "third.weight is wanted as weight; saved is nothing" in str(raised.value)
    assert "first.bias is wanted as weight; saved is frozen" in str(raised.value)


def test_the_file_of_a_rank_is_plain_safetensors(tmp_path) -> None:
    values = {torch.float32: 3, torch.bfloat16: 5, torch.int64: 2, torch.bool: 1, torch.float64: 4}
    given_ = [
        Fragment(name=f"w{n}", kind=WEIGHT, shape=(n,), start=0, values=torch.arange(n).to(dtype))
        for dtype, n in values.items()
    ]
    write_fragments(tmp_path / "a.safetensors", given_)
    read = load_file(tmp_path / "a.safetensors")
    for fragment in given_:
        found = read[f"{fragment.name}|weight|0"]
        assert found.dtype == fragment.values.dtype
        assert torch.equal(found, fragment.values)


def test_parts_keep_tensors_and_json(tmp_path) -> None:
    net = Net(seed=1)
    kept = {"hooks.ema": {"decay": 0.5, "means": {"w": torch.arange(4.0)}, "seen": [1, None, "x"]}, "objective": {}}
    save(tmp_path / "step-000003", state_of(net, optimizer_of(net)), kept)
    parts = load_step(ScriptRanks(), tmp_path / "step-000003").parts
    assert torch.equal(parts["hooks.ema"]["means"].pop("w"), torch.arange(4.0))
    assert parts == {"hooks.ema": {"decay": 0.5, "means": {}, "seen": [1, None, "x"]}, "objective": {}}


def test_a_part_that_gives_what_is_no_json_is_named(tmp_path) -> None:
    net = Net(seed=1)
    with pytest.raises(CheckpointError, match=r"hooks\.ema\.rng is a array; state\(\) gives tensors and JSON values"):
        save(tmp_path / "step-000003", state_of(net, optimizer_of(net)), {"hooks.ema": {"rng": array("i")}})


@given(data=st.data(), size=st.integers(1, 60), ranks=st.integers(1, 5))
@settings(max_examples=40)
def test_any_range_is_read_from_any_cut(tmp_path_factory, data, size, ranks) -> None:
    """The tensor is 0, 1, 2 ...: what is read from `start` must be start, start + 1 ..."""
    folder = tmp_path_factory.mktemp("cut")
    (folder / "state").mkdir()
    borders = sorted(data.draw(st.lists(st.integers(0, size), min_size=ranks - 1, max_size=ranks - 1)))
    whole = torch.arange(float(size))
    for rank, (begin, end) in enumerate(zip([0, *borders], [*borders, size], strict=True)):
        piece = Fragment(name="w", kind=WEIGHT, shape=(size,), start=begin, values=whole[begin:end])
        held = [piece] if end > begin else []
        counters = {"parameters": {}, "groups": []}
        write_rank(folder / "state", rank, SavedState(fragments=lambda h=held: iter(h), counters=lambda c=counters: c))
    begin = data.draw(st.integers(0, size))
    end = data.draw(st.integers(begin, size))
    assert StateReader(folder).read("w", WEIGHT, begin, end - begin).tolist() == list(range(begin, end))


def test_a_range_that_nobody_wrote_is_an_error(tmp_path) -> None:
    (tmp_path / "state").mkdir()
    piece = Fragment(name="w", kind=WEIGHT, shape=(9,), start=4, values=torch.zeros(5))
    counters = {"parameters": {}, "groups": []}
    write_rank(tmp_path / "state", 0, SavedState(fragments=lambda: iter([piece]), counters=lambda: counters))
    with pytest.raises(CheckpointError, match=r"nothing of w \(weight\) from element 2 to 6"):
        StateReader(tmp_path).read("w", WEIGHT, 2, 4)


def test_a_list_says_what_lies_in_the_file(tmp_path) -> None:
    net = Net(seed=1)
    optimizer = optimizer_of(net)
    learn(net, optimizer, 1)
    save(tmp_path / "step-000003", state_of(net, optimizer))
    said = json.loads((tmp_path / "step-000003" / "state" / "rank-00000.json").read_text())
    assert said["counters"]["parameters"]["second.weight"] == {"step": {"tensor": 1.0, "dtype": "float32", "dims": 0}}
    shapes = {(f["name"], f["kind"]): (f["shape"], f["count"]) for f in said["fragments"]}
    assert shapes[("second.weight", "exp_avg_sq")] == ([3, 7], 21)
