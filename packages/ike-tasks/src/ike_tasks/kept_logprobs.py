"""Log-probabilities of answers on disk: written by every rank for itself, read by all through the page cache.

A folder holds `part-<rank>.safetensors`, log-probabilities end to end, and `index.safetensors`: names of answers in
order, and for each the part, where it starts and how many it has. A folder without an index is not whole.
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ike_core.errors import DataError

INDEX = "index.safetensors"


@attrs.frozen(eq=False)
class KeptLogprobs:
    """What a folder holds."""

    folder: Path
    names: "array[int]"
    """Sorted."""
    places: Sequence[tuple[int, int, int]]
    """Part, first and count of each."""
    parts: Sequence[Tensor]

    @classmethod
    def open(cls, folder: Path) -> "KeptLogprobs":
        """What `write_index` has finished."""
        index = load_file(folder / INDEX)
        places = list(zip(*(index[column].tolist() for column in ("part", "first", "count")), strict=True))
        count = int(index["parts"])
        parts = [load_file(_part(folder, rank))["logprobs"] for rank in range(count)]
        return cls(folder, array("q", index["name"].tolist()), places, parts)

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: int) -> Tensor | None:
        """Of one answer; None where it is not here."""
        place = bisect_left(self.names, name)
        if place == len(self.names) or self.names[place] != name:
            return None
        part, first, count = self.places[place]
        return self.parts[part][first : first + count]


def is_whole(folder: Path) -> bool:
    return (folder / INDEX).is_file()


def write_part(folder: Path, rank: int, answers: Mapping[int, Tensor], dtype: torch.dtype) -> None:
    """One rank's share."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = torch.tensor([len(logp) for logp in answers.values()], dtype=torch.int64)
    logprobs = torch.cat([torch.empty(0, dtype=dtype), *answers.values()])
    names = torch.tensor(list(answers), dtype=torch.int64)
    save_file({"logprobs": logprobs, "name": names, "count": counts}, _part(folder, rank))


def write_index(folder: Path, ranks: int) -> None:
    """When all parts are there. DataError where the folder is not on a disk that all hosts share."""
    found = dict[int, tuple[int, int, int]]()
    for rank in range(ranks):
        if not _part(folder, rank).is_file():
            raise DataError(
                f"{folder}: rank {rank}'s share is not there; let data.cache be a folder that all hosts share, or "
                "leave out precomputed"
            )
        part = load_file(_part(folder, rank))
        counts = part["count"]
        firsts = counts.cumsum(0) - counts
        rows = zip(part["name"].tolist(), firsts.tolist(), counts.tolist(), strict=True)
        found |= {name: (rank, first, count) for name, first, count in rows}
    names = sorted(found)
    columns = zip(*(found[name] for name in names), strict=True) if names else ((), (), ())
    index = {
        column: torch.tensor(values, dtype=torch.int64)
        for column, values in zip(("part", "first", "count"), columns, strict=True)
    }
    index |= {"name": torch.tensor(names, dtype=torch.int64), "parts": torch.tensor(ranks)}
    save_file(index, folder / INDEX)


def _part(folder: Path, rank: int) -> Path:
    return folder / f"part-{rank:05d}.safetensors"
