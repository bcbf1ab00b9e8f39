"""What one rank keeps of the training state: a file of fragments, and a file that lists them.

`state/rank-00000.safetensors` and `state/rank-00000.json`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_ckpt.disk import write_json
from ike_ckpt.fragment_file import WrittenFragment, write_fragments
from ike_core.errors import CheckpointError
from ike_core.interfaces import SavedState

FOLDER = "state"


def tensors_of(rank: int) -> str:
    return f"rank-{rank:05}.safetensors"


def list_of(rank: int) -> str:
    return f"rank-{rank:05}.json"


@attrs.frozen(kw_only=True)
class RankList:
    """`rank-00000.json`, read."""

    rank: int
    hash: str
    """Of the file of tensors."""
    bytes: int
    counters: Mapping[str, Any]
    fragments: tuple[WrittenFragment, ...]


def write_rank(folder: Path, rank: int, state: SavedState) -> None:
    """Both files into `folder`, on disk when this returns."""
    written = write_fragments(folder / tensors_of(rank), state.fragments())
    write_json(
        folder / list_of(rank),
        {
            "rank": rank,
            "bytes": written.bytes,
            "hash": written.hash,
            "counters": state.counters(),
            "fragments": [attrs.asdict(fragment) for fragment in written.fragments],
        },
    )


def read_rank(path: Path) -> RankList:
    """CheckpointError naming the file where it is no such list."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return RankList(
            rank=int(said["rank"]),
            hash=str(said["hash"]),
            bytes=int(said["bytes"]),
            counters=_counters(said["counters"]),
            fragments=tuple(_fragment(fragment) for fragment in said["fragments"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not a rank's list of fragments: {error!r}") from error


def _counters(said: Any) -> Mapping[str, Any]:
    if not (isinstance(said["parameters"], dict) and isinstance(said["groups"], list)):
        raise TypeError("counters are tables of parameters and groups")
    return {"parameters": said["parameters"], "groups": said["groups"]}


def _fragment(said: Any) -> WrittenFragment:
    shape = tuple(said["shape"])
    count, start = said["count"], said["start"]
    if not all(isinstance(size, int) and size >= 0 for size in (*shape, count, start)):
        raise ValueError(f"sizes are whole numbers of 0 or more, got shape {shape}, start {start}, count {count}")
    return WrittenFragment(
        name=str(said["name"]),
        kind=str(said["kind"]),
        shape=shape,
        start=start,
        count=count,
        dtype=str(said["dtype"]),
        hash=str(said["hash"]),
    )
