"""What a GPU run asks of CUDA and of torch.distributed, and in which order: recorded, on a machine without a GPU.

Whatever would really touch CUDA here raises, since this torch or this machine has none.
"""

import json
import os
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ike_core.batch import Batch
from ike_core.config import load_config
from ike_core.cutting import Ceiling
from ike_core.errors import ConfigError
from ike_core.examples import Example
from ike_core.feed import Batches, Feed
from ike_core.interfaces import EngineSettings, ParameterNames
from ike_core.models import ModelBuilder
from ike_core.ordering import Ordering
from ike_core.runtime import DeepSpeed, PlainTorch, torch_world
from ike_core.runtime.modules import peak_memory
from ike_core.runtime.placement import finisher, pinned, place
from ike_core.runtime.seeds import new_generator
from ike_core.runtime.torch_world import TIMEOUT, TorchWorld, synchronize_workers

Calls = list[Any]
CUDA_3 = torch.device("cuda", 3)
META = torch.device("meta")  # a device that is not the host, and that is here

LAUNCHED = {"RANK": "7", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "host"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Four GPUs, no process group yet, and a list of what is asked, in order."""
    made: Calls = []
    group: dict[str, Any] = {}

    def init_process_group(backend: str, **said: Any) -> None:
        made.append(("init_process_group", backend, said))
        group["size"] = said.get("world_size", int(os.environ.get("WORLD_SIZE", "1")))

    def new_group(**said: Any) -> str:
        made.append(("new_group", said))
        return "the host group"

    for name in (*LAUNCHED, "DS_ACCELERATOR"):
        monkeypatch.setenv(name, "")  # so that what the code sets is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: made.append(("set_device", device)))
    monkeypatch.setattr(dist, "is_initialized", lambda: bool(group))
    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    monkeypatch.setattr(dist, "new_group", new_group)
    monkeypatch.setattr(dist, "get_world_size", lambda: group["size"])
    monkeypatch.setattr(dist, "get_rank", lambda: int(os.environ.get("RANK", "0")))
    monkeypatch.setattr(torch_world, "_host_groups", {})
    monkeypatch.setattr(torch_world.atexit, "register", lambda function: None)
    return made


def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)


# -- the ranks meet ------------------------------------------------------------------------------------------------


def test_a_rank_chooses_its_gpu_first_and_binds_the_group_to_it(calls, monkeypatch) -> None:
    launched(monkeypatch)
    world = DeepSpeed().start()
    assert calls == [
        ("set_device", CUDA_3),
        ("init_process_group", "nccl", {"timeout": TIMEOUT, "device_id": CUDA_3}),
        ("new_group", {"backend": "gloo", "timeout": TIMEOUT}),
    ]
    assert (world.device, world.rank, world.size, world.local_rank, world.local_size) == (CUDA_3, 7, 8, 3, 4)
    assert world.host_group == "the host group"


def test_a_process_that_nobody_launched_takes_the_first_gpu(calls) -> None:
    assert PlainTorch().start().device == torch.device("cuda", 0)
    assert calls == [("set_device", torch.device("cuda", 0))]
    world = DeepSpeed().start()
    (_, chosen), (_, backend, said) = calls[1:]
    assert chosen == said["device_id"] == world.device == torch.device("cuda", 0)
    assert (backend, said["rank"], said["world_size"], world.host_group) == ("nccl", 0, 1, None)


def test_a_process_group_that_is_there_is_used_as_it_is(calls, monkeypatch) -> None:
    launched(monkeypatch)
    dist.init_process_group("nccl")
    assert DeepSpeed().start().size == 8
    assert [name for name, *_ in calls] == ["init_process_group", "set_device", "new_group"]


def test_the_cpu_takes_gloo_and_no_device(calls, monkeypatch) -> None:
    launched(monkeypatch)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert DeepSpeed().start().device == torch.device("cpu")
    assert calls[0] == ("init_process_group", "gloo", {"timeout": TIMEOUT, "device_id": None})


def test_what_the_user_says_of_the_gpus_is_read_and_never_written(calls, monkeypatch) -> None:
    launched(monkeypatch)
    before = dict(os.environ)
    DeepSpeed().start()
    assert dict(os.environ) == before


def test_more_ranks_than_gpus_are_refused(calls, monkeypatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "4")
    with pytest.raises(ConfigError, match=r"LOCAL_RANK = 4, .* sees 4 GPUs \(CUDA_VISIBLE_DEVICES=4,5,6,7\)"):
        PlainTorch().start()
    assert calls == []


# -- what they tell each other -------------------------------------------------------------------------------------


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """(collective, its group, where its tensor lies); the other rank says the same as this one."""
    used: Calls = []

    def broadcast(tensor: Tensor, source: int, *, group: Any = None) -> None:
        used.append(("broadcast", group, tensor.device.type))

    def all_gather(rows: list[Tensor], tensor: Tensor, *, group: Any = None) -> None:
        used.append(("all_gather", group, tensor.device.type))
        for row in rows:
            row.copy_(tensor)

    def all_reduce(tensor: Tensor, *, group: Any = None) -> None:
        used.append(("all_reduce", group, tensor.device.type))
        tensor.mul_(2)

    monkeypatch.setattr(dist, "broadcast", broadcast)
    monkeypatch.setattr(dist, "all_gather", all_gather)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(dist, "barrier", lambda *, group=None: used.append(("barrier", group, "cpu")))
    return used


def world(size: int, device: torch.device = META) -> TorchWorld:
    host_group = "host" if size > 1 else None
    return TorchWorld(rank=0, size=size, local_rank=0, local_size=size, device=device, host_group=host_group)


def test_numbers_of_the_host_never_ride_on_the_devices_group(groups) -> None:
    ranks = world(2)
    assert ranks.broadcast({"id": "run-1"}) == {"id": "run-1"}
    assert ranks.gather([1, 2]) == [[1, 2], [1, 2]]
    assert ranks.sum([1.5, 2.0]) == [3.0, 4.0]
    ranks.synchronize()
    assert {(group, place) for _, group, place in groups} == {("host", "cpu")}
    assert {name for name, *_ in groups} == {"broadcast", "all_gather", "all_reduce", "barrier"}


def test_tensors_are_summed_on_the_devices_group(groups) -> None:
    world(2).sum_tensor(torch.ones(3, device=META))
    assert groups == [("all_reduce", None, "meta")]  # None: the default group


def test_one_rank_asks_nobody(groups) -> None:
    alone = world(1)
    assert (alone.broadcast("x"), alone.gather("x"), alone.sum([2.0])) == ("x", ["x"], [2.0])
    assert alone.sum_tensor(torch.tensor(3.0)) == 3.0
    alone.synchronize()
    assert groups == []


def test_workers_of_a_script_meet_on_a_group_of_the_host(calls, groups, monkeypatch) -> None:
    launched(monkeypatch)
    dist.init_process_group("nccl")
    synchronize_workers()
    assert calls[-1] == ("new_group", {"backend": "gloo", "timeout": TIMEOUT})
    assert groups == [("barrier", "the host group", "cpu")]


# -- batches -------------------------------------------------------------------------------------------------------


class Recorded(Tensor):
    """A tensor that tells what is asked of it."""

    asked: Calls

    def pin_memory(self) -> Tensor:
        self.asked.append(("pin_memory", threading.current_thread().name))
        return self

    def to(self, *where: Any, **how: Any) -> Tensor:
        self.asked.append(("to", where, how))
        return self


def recorded(asked: Calls) -> Recorded:
    tensor = torch.zeros(2).as_subclass(Recorded)
    tensor.asked = asked
    return tensor


@attrs.frozen
class Rows:
    """A dataset of equal rows."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Example:
        return Example.of([1, 2], [0, 1])

    def size(self, index: int) -> int:
        return 2

    def weights(self, index: int) -> Mapping[str, float]:
        return {"tokens": 1.0}


def test_batches_are_pinned_in_the_thread_that_makes_them() -> None:
    asked: Calls = []
    batches = Batches(
        collate=lambda examples: Batch({"input_ids": recorded(asked)}, {"tokens": 1.0}),
        ceiling=Ceiling(tokens=8, examples=0, pads=False),
        world=world(1),
        counts_as_weigh=True,
        finish=finisher(CUDA_3),
    )
    (step,) = Feed(Rows(), Ordering(4, 4, seed=0), batches).steps(0, 1)
    assert asked == [("pin_memory", "ike-feed")] * len(step.micro_batches)


def test_without_a_gpu_nothing_is_pinned() -> None:
    asked: Calls = []
    finisher(torch.device("cpu"))(Batch({"x": recorded(asked)}, {}))
    assert asked == []


def test_a_batch_is_placed_without_waiting_however_deep_its_tensors_lie() -> None:
    asked: Calls = []
    batch = Batch({"x": recorded(asked), "more": {"y": recorded(asked), "name": "a"}}, {})
    placed = place(batch, CUDA_3)
    assert asked == [("to", (CUDA_3,), {"non_blocking": True})] * 2
    assert placed["more"]["name"] == "a"


def test_what_is_on_the_device_already_is_not_pinned() -> None:
    with FakeTensorMode():
        there = torch.empty(2, device="cuda")
    asked: Calls = []
    batch = pinned(Batch({"there": there, "more": {"here": recorded(asked)}}, {}))
    assert batch["there"] is there
    assert [name for name, _ in asked] == ["pin_memory"]


# -- the device's own numbers --------------------------------------------------------------------------------------


def test_generators_are_made_on_the_device(monkeypatch) -> None:
    made: Calls = []

    class Generator:
        def __init__(self, device: torch.device) -> None:
            made.append(device)

        def manual_seed(self, seed: int) -> int:
            return seed

    monkeypatch.setattr(torch, "Generator", Generator)
    assert new_generator(CUDA_3, (1 << 64) - 1) == (1 << 63) - 1  # torch takes 63 bits
    assert made == [CUDA_3]


def test_peak_memory_is_the_devices(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", {CUDA_3: 123}.__getitem__)
    assert peak_memory(CUDA_3) == 123


# -- models --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Small:
    """A ModelPart."""

    width: int = 4

    def build(self, context: Any) -> nn.Module:
        return nn.Linear(self.width, 1, dtype=context.dtype)


class AsItIs:
    """A collate that wraps nothing."""

    def prepare(self, model: nn.Module) -> nn.Module:
        assert all(parameter.device == META for parameter in model.parameters())
        return model


def test_models_that_do_not_learn_lie_on_the_device(tmp_path) -> None:
    uses = json.dumps(f"{__name__}:Small")
    (tmp_path / "run.toml").write_text(f'[frozen.teacher]\nuses = {uses}\nwidth = 8\ndtype = "bfloat16"\n')
    config = load_config(tmp_path / "run.toml")
    models = ModelBuilder(
        config=config, engine_part=PlainTorch(), world=world(1), vocabulary=None, trains=True, say=print
    )
    teacher = models.frozen(nn.Linear(4, 1), given=None, collate=AsItIs())["teacher"]
    assert {(p.device, p.dtype, p.requires_grad) for p in teacher.parameters()} == {(META, torch.bfloat16, False)}
    assert not teacher.training


def settings(seen: Calls, precision: str = "fp32") -> EngineSettings:
    def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
        seen.append({parameter.device for parameter in model.parameters()})
        return torch.optim.SGD(model.parameters(), lr=1.0)

    return EngineSettings(precision=precision, clip_norm=0.0, new_optimizer=new_optimizer)


def test_the_plain_engine_moves_the_model_before_its_optimizer_is_made() -> None:
    seen: Calls = []
    model = nn.Linear(2, 2)
    PlainTorch().build(model, ParameterNames(model), settings=settings(seen), world=world(1))
    assert seen == [{META}]


@pytest.fixture
def initialized(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What reaches `deepspeed.initialize`: where the parameters lie, and the settings."""
    made: Calls = []

    def initialize(model: nn.Module, optimizer: Any, config: Mapping[str, Any]) -> Any:
        made.append(({parameter.device for parameter in model.parameters()}, config))
        return SimpleNamespace(train=lambda: None)

    monkeypatch.setattr("ike_core.runtime.deepspeed_engine._initialize", initialize)
    monkeypatch.setattr("ike_core.runtime.deepspeed_engine.release_with", lambda owner, theirs: None)
    return made


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_model_is_moved_once_but_for_zero_3_which_places_its_own(stage, initialized) -> None:
    seen: Calls = []
    model = nn.Linear(2, 2)
    DeepSpeed(zero_stage=stage).build(model, ParameterNames(model), settings=settings(seen), world=world(1))
    where = {torch.device("cpu")} if stage == 3 else {META}
    assert seen == [where]
    ((placed, config),) = initialized
    assert placed == where
    assert config["zero_optimization"] == {"stage": stage}  # no offload: parameters stay where they are put


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_zero_3_deals_parameters_out_on_the_device(precision, monkeypatch) -> None:
    deepspeed = pytest.importorskip("deepspeed")
    made: Calls = []

    class Init:
        def __init__(self, **said: Any) -> None:
            made.append(said)

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr("ike_core.runtime.deepspeed_engine._deepspeed", lambda: deepspeed)
    monkeypatch.setattr(deepspeed.zero, "Init", Init)
    with DeepSpeed(zero_stage=3).building(precision=precision):
        pass
    (said,) = made
    assert list(said) == ["config_dict_or_path"]  # no remote_device: the rank's own
    assert said["config_dict_or_path"]["bf16"] == {"enabled": precision == "bf16"}
    with DeepSpeed(zero_stage=2).building(precision=precision):
        assert len(made) == 1


def test_on_a_gpu_deepspeed_is_left_to_find_it_and_no_compiler_runs(monkeypatch) -> None:
    deepspeed, ops = pytest.importorskip("deepspeed"), pytest.importorskip("deepspeed.ops")
    from ike_core.runtime import deepspeed_engine

    def no_probe() -> dict[str, bool]:
        raise AssertionError("looked which operators could be compiled")

    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(deepspeed, "init_distributed", lambda **_: None)
    monkeypatch.delitem(vars(ops), "__compatible_ops__", raising=False)
    monkeypatch.setattr(ops, "_probe_compatible_ops", no_probe)
    deepspeed_engine._deepspeed()
    assert "DS_ACCELERATOR" not in os.environ


# -- the norm ------------------------------------------------------------------------------------------------------


class Norm:
    """A gradient norm on a device: reading it is what costs."""

    def __init__(self) -> None:
        self.reads = 0

    def __float__(self) -> float:
        self.reads += 1
        return 1.0


def engine_of(stage: int, norm: Norm, monkeypatch: pytest.MonkeyPatch) -> Any:
    from ike_core.runtime import deepspeed_engine

    model = nn.Linear(2, 2)
    theirs = SimpleNamespace(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        skipped_steps=0,
        step=lambda: None,
        get_global_grad_norm=lambda: norm,
    )
    monkeypatch.setattr(deepspeed_engine, "gradient_norm", lambda parameters: norm)
    monkeypatch.setattr(deepspeed_engine, "release_with", lambda owner, theirs: None)
    return deepspeed_engine.DeepSpeedEngine(theirs, ParameterNames(model), world(1), stage, [1.0], clip_norm=0.0)


@pytest.mark.parametrize(("stage", "reads"), [(0, 1), (1, 0), (2, 0), (3, 0)])
def test_ike_reads_the_norm_where_the_engine_does_not(stage, reads, monkeypatch) -> None:
    norm = Norm()
    report = engine_of(stage, norm, monkeypatch).update({"": 0.5})
    assert (norm.reads, report.applied, report.learning_rate) == (reads, True, 0.5)
