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
    def is_first(self) -> bool:
        """Whether this is rank 0."""
        ...

    def broadcast(self, value: Any) -> Any:
        """Collective: rank 0's JSON value, on every rank."""
        ...


@attrs.frozen
class ScriptRanks:
    """The default process group, or one process where there is none."""

    @property
    def is_first(self) -> bool:
        return not distributed.is_initialized() or distributed.get_rank() == 0

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
