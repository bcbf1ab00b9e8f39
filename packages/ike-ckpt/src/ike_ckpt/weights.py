"""Model weights as sharded safetensors, as transformers reads them; one tensor in memory beyond the open shard."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ike_core.errors import CheckpointError

SHARD_BYTES = 1 << 30
"""Largest file, but for a single tensor that is larger; also what rank 0 holds in memory while writing."""
PLACEHOLDER = (0,)
"""The shape of what DeepSpeed leaves of a parameter that lies in pieces."""
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
ADAPTER = "adapter_model"
"""The file's stem that peft looks for."""


@attrs.frozen
class WrittenWeights:
    """What lies in the folder."""

    files: tuple[str, ...]
    bytes: int
    """Of all tensors, headers not counted."""
    dtype: torch.dtype | None
    """Of the floating-point tensors with most bytes; None where there are none."""


def write_weights(
    folder: Path,
    named_tensors: Iterable[tuple[str, Tensor]],
    *,
    tied: Mapping[str, str] | None = None,
    stem: str = "model",
    shard_bytes: int = SHARD_BYTES,
) -> WrittenWeights:
    """Writes full tensors, in their own dtype, into `folder`; a tensor given may be gone after the next turn.

    Views, shared storage and any strides are fine: every tensor is copied on its own. `tied` says which names share a
    tensor with another, which is among those given; it is kept in the files' headers.
    One shard becomes `<stem>.safetensors`, more get an index. Raises CheckpointError for a placeholder of ZeRO-3,
    a name that comes twice, or no tensor at all.
    """
    writer = _ShardWriter(folder, stem, shard_bytes, {"format": "pt", **(tied or {})})
    for name, tensor in named_tensors:
        writer.add(name, tensor)
    return writer.finish()


@attrs.define
class _ShardWriter:
    """The shard that is being filled, and those that are on disk."""

    folder: Path
    stem: str
    shard_bytes: int
    header: Mapping[str, str]
    _open: dict[str, Tensor] = attrs.field(factory=dict)
    _open_bytes: int = 0
    _shards: list[tuple[str, ...]] = attrs.field(factory=list)
    _names: set[str] = attrs.field(factory=set)
    _bytes_of: dict[torch.dtype, int] = attrs.field(factory=dict)

    def add(self, name: str, tensor: Tensor) -> None:
        if tensor.shape == PLACEHOLDER:
            raise CheckpointError(
                f"{name} has no values (shape [0]): under ZeRO-3 that is a placeholder, not the weight; give the "
                "gathered tensor (a pipeline's save_checkpoint does). One that is meant to be empty is saved with "
                "another shape, as torch.empty(0, 1)"
            )
        if name in self._names:
            raise CheckpointError(f"{name} came twice; a tied weight is written once, under one name")
        size = tensor.numel() * tensor.element_size()
        if self._open and self._open_bytes + size > self.shard_bytes:
            self._flush()
        self._names.add(name)
        self._open[name] = _own_copy(tensor)
        self._open_bytes += size
        self._bytes_of[tensor.dtype] = self._bytes_of.get(tensor.dtype, 0) + size

    def finish(self) -> WrittenWeights:
        """Flushes what is left and names the files."""
        if not self._names:
            raise CheckpointError("the model gave no weights to save")
        self._flush()
        total = sum(self._bytes_of.values())
        count = len(self._shards)
        numbers = [""] if count == 1 else [f"-{i + 1:05}-of-{count:05}" for i in range(count)]
        files = [f"{self.stem}{number}.safetensors" for number in numbers]
        for number, file in enumerate(files):
            self._numbered(number).rename(self.folder / file)
        if count > 1:
            weight_map = {name: file for file, names in zip(files, self._shards, strict=True) for name in names}
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            (self.folder / f"{self.stem}.safetensors.index.json").write_text(
                json.dumps(index, indent=2) + "\n", encoding="utf-8"
            )
        floating = {dtype: size for dtype, size in self._bytes_of.items() if dtype.is_floating_point}
        return WrittenWeights(tuple(files), total, max(floating, key=floating.__getitem__) if floating else None)

    def _flush(self) -> None:
        path = self._numbered(len(self._shards))
        try:
            save_file(self._open, path, metadata=dict(self.header))
        except SafetensorError as error:  # the library's own class also for a full disk
            raise CheckpointError(f"{path} ({self._open_bytes / 1e6:.1f} MB) could not be written: {error}") from error
        self._shards.append(tuple(self._open))
        self._open.clear()
        self._open_bytes = 0

    def _numbered(self, number: int) -> Path:
        return self.folder / f"shard-{number + 1:05}.safetensors"  # how many there will be is known at the end


def _own_copy(tensor: Tensor) -> Tensor:
    """On the host, contiguous, in memory of its own: safetensors refuses shared and strided tensors."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor.detach())


def read_weights(folder: Path) -> dict[str, Tensor]:
    """What `write_weights` wrote, tied names included; as `load_state_dict` takes it. Nothing in a file can run code.

    Raises CheckpointError naming the file where one is missing, cut off, or not in the index's words.
    """
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    for file in weight_files(folder):
        try:
            with safe_open(folder / file, framework="pt") as opened:
                tensors.update((name, opened.get_tensor(name)) for name in opened.keys())  # noqa: SIM118 not a dict
                tied.update(opened.metadata() or {})
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{folder / file} can't be read: {error}") from error
    tied.pop("format", None)
    return tensors | {name: tensors[kept] for name, kept in tied.items() if kept in tensors}


def weight_files(folder: Path) -> list[str]:
    """Names of a folder's safetensors files, each once. CheckpointError for an index that is none."""
    index = folder / INDEX
    if not index.exists():
        return [SINGLE]
    try:
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is not an index of safetensors files: {error!r}") from error
