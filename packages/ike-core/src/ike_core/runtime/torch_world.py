"""The ranks of a torch.distributed job: two groups, the device's for tensors and a host group for everything else."""

import atexit
import json
import os
import sys
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

import attrs
import torch
import torch.distributed as dist
from torch import Tensor

from ike_core.errors import ConfigError

TIMEOUT = timedelta(minutes=30)
"""Of a collective: how long a silent link or a hanging rank holds the others."""


@attrs.define(eq=False)
class TorchWorld:
    """See `ike_core.interfaces.World`. One rank needs no process group."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    host_group: Any = None
    """gloo: integers, JSON, ids and flags never ride on NCCL."""

    def __attrs_post_init__(self) -> None:
        _worlds.add(self)

    @classmethod
    def start(cls, *, needs_group: bool) -> Self:
        """Collective. Reads the launcher's environment; a process group that is there already is used as it is.

        `needs_group`: make a process group even for one rank, as DeepSpeed wants one.
        """
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        device = torch.device("cuda", local_rank) if has_gpu() else torch.device("cpu")
        if device.type == "cuda":  # before anything touches CUDA: the first touch makes a context on device 0
            _refuse_more_ranks_than_gpus(local_rank)
            torch.cuda.set_device(device)
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if not dist.is_initialized() and (size > 1 or needs_group):
            _join(device)
        joined = dist.is_initialized()
        size = dist.get_world_size() if joined else 1
        return cls(
            rank=dist.get_rank() if joined else 0,
            size=size,
            local_rank=local_rank,
            local_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            device=device,
            host_group=_host_group() if size > 1 else None,
        )

    @property
    def replicas(self) -> int:
        return self.size

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def broadcast(self, value: Any) -> Any:
        if self.size == 1:
            return _decode(_encode(value))
        payload = _encode(value) if self.rank == 0 else torch.empty(0, dtype=torch.uint8)
        length = torch.tensor([len(payload)])
        dist.broadcast(length, 0, group=self.host_group)
        if self.rank != 0:
            payload = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(payload, 0, group=self.host_group)
        return _decode(payload)

    def gather(self, value: Any) -> list[Any]:
        payload = _encode(value)
        if self.size == 1:
            return [_decode(payload)]
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(payload)]), group=self.host_group)
        longest = int(max(lengths))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(payload)] = payload
        rows = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(rows, padded, group=self.host_group)
        return [_decode(row[: int(length)]) for row, length in zip(rows, lengths, strict=True)]

    def sum(self, values: Sequence[float]) -> list[float]:
        totals = torch.tensor(values, dtype=torch.float64)
        if self.size > 1:
            dist.all_reduce(totals, group=self.host_group)
        return totals.tolist()

    def sum_tensor(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def synchronize(self) -> None:
        if self.size > 1:
            dist.barrier(group=self.host_group)


def has_gpu() -> bool:
    """Whether ranks run on GPUs. DS_ACCELERATOR=cpu keeps them off, as it does the launcher and DeepSpeed."""
    return os.environ.get("DS_ACCELERATOR") != "cpu" and torch.cuda.is_available()


def _refuse_more_ranks_than_gpus(local_rank: int) -> None:
    count = torch.cuda.device_count()  # asks the driver; makes no context
    if local_rank >= count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        said = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        raise ConfigError(
            f"LOCAL_RANK = {local_rank}, and this process sees {count} GPU{'s' if count > 1 else ''}{said}: start at "
            "most one rank a GPU, or set DS_ACCELERATOR=cpu to run on the CPU"
        )


_host_groups: dict[Any, Any] = {}
_worlds: "weakref.WeakSet[TorchWorld]" = weakref.WeakSet()


def _host_group() -> Any:
    """One a process group, however many pipelines a process builds: groups are made collectively and never freed."""
    whole = dist.group.WORLD
    if whole not in _host_groups:
        _host_groups.clear()
        _host_groups[whole] = dist.new_group(backend="gloo", timeout=TIMEOUT)
    return _host_groups[whole]


def _join(device: torch.device) -> None:
    atexit.register(leave)
    backend = "nccl" if device.type == "cuda" else "gloo"
    device_id = device if device.type == "cuda" else None
    if "RANK" in os.environ and "MASTER_ADDR" in os.environ:
        dist.init_process_group(backend, timeout=TIMEOUT, device_id=device_id)
    else:  # a script or a notebook that nobody launched
        os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed asks for it
        store = dist.HashStore()  # type: ignore[attr-defined]  # public in torch's documentation
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=TIMEOUT, device_id=device_id)


def leave() -> None:
    """At the end of a process that made its group: gloo's threads otherwise abort it now and then, after a good run.

    A group is gone when nobody holds it, so every world lets go of its own first. Not after an exception: the others
    may sit in a collective, and leaving would wait for them.
    """
    if not dist.is_initialized() or hasattr(sys, "last_value"):
        return
    for world in _worlds:
        world.host_group = None
    _host_groups.clear()
    dist.destroy_process_group()


def synchronize_workers() -> None:
    """Returns when every rank has come; at once where there is one process."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier(group=_host_group())


def _encode(value: Any) -> Tensor:
    data = bytearray(json.dumps(value).encode())
    return torch.frombuffer(data, dtype=torch.uint8)


def _decode(payload: Tensor) -> Any:
    return json.loads(bytes(payload.tolist()))
