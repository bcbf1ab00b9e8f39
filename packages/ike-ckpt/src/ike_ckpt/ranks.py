"""What the ranks of a script tell each other: JSON bytes, and whether rank 0 succeeded. Never a pickle.

A pipeline has its World; this is for a script that has a torch.distributed group, or none.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import attrs
import torch
from torch import distributed

from ike_core.errors import CheckpointError


class Speaks(Protocol):
    """What is needed of the ranks here; a World satisfies it."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0."""
        ...

    def broadcast(self, value: Any) -> Any:
        """Collective: rank 0's JSON value, on every rank."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Collective: every rank's JSON value, by rank, on every rank."""
        ...


@attrs.frozen
class ScriptRanks:
    """The default process group, or one process where there is none."""

    rank: int = attrs.field(init=False)
    size: int = attrs.field(init=False)

    @rank.default
    def _own_rank(self) -> int:
        return distributed.get_rank() if distributed.is_initialized() else 0

    @size.default
    def _how_many(self) -> int:
        return distributed.get_world_size() if distributed.is_initialized() else 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def broadcast(self, value: Any) -> Any:
        """Collective: rank 0's JSON value, on every rank; as bytes over gloo, whatever the default backend is."""
        if not distributed.is_initialized():
            return value
        with _host_group() as group:
            said = json.dumps(value).encode() if self.is_first else b""
            size = torch.tensor([len(said)], dtype=torch.int64)
            distributed.broadcast(size, src=0, group=group)
            content = bytearray(said) if self.is_first else bytearray(int(size))
            distributed.broadcast(torch.frombuffer(content, dtype=torch.uint8), src=0, group=group)
        return json.loads(content)

    def gather(self, value: Any) -> list[Any]:
        """Collective: every rank's JSON value, by rank, on every rank; as bytes over gloo."""
        if not distributed.is_initialized():
            return [value]
        said = json.dumps(value).encode()
        with _host_group() as group:
            size = torch.tensor([len(said)], dtype=torch.int64)
            sizes = [torch.empty_like(size) for _ in range(self.size)]
            distributed.all_gather(sizes, size, group=group)
            longest = max(int(one) for one in sizes)
            content = bytearray(said.ljust(longest))  # JSON may end in spaces
            gathered = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
            distributed.all_gather(gathered, torch.frombuffer(content, dtype=torch.uint8), group=group)
        return [json.loads(one.numpy().tobytes()) for one in gathered]


@contextmanager
def _host_group() -> Iterator[distributed.ProcessGroup | None]:
    """A group over all ranks whose tensors live on the host; None is the default group."""
    if distributed.get_backend() == "gloo":
        yield None
        return
    group = distributed.new_group(backend="gloo")
    try:
        yield group
    finally:
        distributed.destroy_process_group(group)


def agree(ranks: Speaks, problem: str) -> None:
    """Collective: returns when rank 0 has come; raises its problem on every rank, so that none is left waiting."""
    said = ranks.broadcast(problem)
    if said:
        raise CheckpointError(said)


def agree_all(ranks: Speaks, problem: str) -> None:
    """Collective: raises on every rank what went wrong on any, the first rank's words with the number of the rank."""
    said = ranks.gather(problem)
    wrong = [rank for rank, words in enumerate(said) if words]
    if wrong:
        also = f" (and on {len(wrong) - 1} more ranks)" if len(wrong) > 1 else ""
        raise CheckpointError(f"on rank {wrong[0]}{also}: {said[wrong[0]]}" if ranks.size > 1 else said[wrong[0]])
