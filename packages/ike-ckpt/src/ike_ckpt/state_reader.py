"""`state/` read by ranges, whatever ranks wrote it: only the slices asked for leave the disk, through mmap."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ike_ckpt.fragment_file import WrittenFragment
from ike_ckpt.rank_state import FOLDER, RankList, read_rank, tensors_of
from ike_core.errors import CheckpointError


@attrs.frozen(eq=False)
class StateReader:
    """See `ike_core.fragments.SavedFragments`."""

    folder: Path
    """A step's."""

    @cached_property
    def lists(self) -> tuple[RankList, ...]:
        """By rank. CheckpointError where there is none: the step keeps weights alone."""
        paths = sorted((self.folder / FOLDER).glob("rank-*.json"))
        if not paths:
            raise CheckpointError(f"{self.folder} has no {FOLDER}/: nothing there can be gone on from")
        return tuple(read_rank(path) for path in paths)

    @cached_property
    def counters(self) -> Mapping[str, Any]:
        """Of all ranks, by parameter."""
        parameters = {name: counted for one in self.lists for name, counted in one.counters["parameters"].items()}
        return {"parameters": parameters, "groups": self.lists[0].counters["groups"]}

    def kinds(self, name: str) -> tuple[str, ...]:
        return tuple(self._placed.get(name, {}))

    def shape(self, name: str) -> tuple[int, ...]:
        first, *_ = self._placed[name].values()
        return first[0][1].shape

    def read(self, name: str, kind: str, start: int, count: int) -> Tensor:
        """CheckpointError where the fragments on disk don't cover the range, or a file is not what its list says."""
        parts = []
        position, end = start, start + count
        for rank, fragment in self._placed.get(name, {}).get(kind, ()):
            if fragment.start <= position < fragment.start + fragment.count and position < end:
                until = min(end, fragment.start + fragment.count)
                parts.append(self._slice(rank, fragment, position - fragment.start, until - fragment.start))
                position = until
        if position < end:
            raise CheckpointError(f"{self.folder} has nothing of {name} ({kind}) from element {position} to {end}")
        return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else torch.empty(0)

    def names(self) -> Iterable[str]:
        """Of all tensors."""
        return self._placed.keys()

    @cached_property
    def _placed(self) -> Mapping[str, Mapping[str, list[tuple[int, WrittenFragment]]]]:
        """Name -> kind -> fragments in the order of their elements, each with the rank that wrote it."""
        placed: dict[str, dict[str, list[tuple[int, WrittenFragment]]]] = defaultdict(lambda: defaultdict(list))
        for one in self.lists:
            for fragment in one.fragments:
                placed[fragment.name][fragment.kind].append((one.rank, fragment))
        for kinds in placed.values():
            for fragments in kinds.values():
                fragments.sort(key=lambda found: found[1].start)
        return placed

    @cached_property
    def _opened(self) -> dict[int, Any]:
        return {}

    def _slice(self, rank: int, fragment: WrittenFragment, begin: int, end: int) -> Tensor:
        path = self.folder / FOLDER / tensors_of(rank)
        try:
            if rank not in self._opened:
                self._opened[rank] = safe_open(path, framework="pt")
            found = self._opened[rank].get_slice(fragment.key)
            if found.get_shape() != [fragment.count]:
                raise CheckpointError(
                    f"{path} has {found.get_shape()} elements of {fragment.key}; its list says {fragment.count}"
                )
            values: Tensor = found[begin:end]
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path} can't be read: {error}") from error
        return values
