"""`state/rank-00000.safetensors`: a rank's fragments, written and hashed in one pass; and what is said of them beside.

safetensors' own writer wants every tensor in memory at once and hashes nothing; the format itself is a header of JSON
and bytes (https://huggingface.co/docs/safetensors). It is read by the library.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import attrs
import torch
import xxhash
from torch import Tensor

from ike_ckpt.hashing import hash_of
from ike_core.errors import CheckpointError
from ike_core.fragments import Fragment

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""safetensors' names."""
CHUNK_BYTES = 1 << 24
"""Written and hashed at once: what was hashed is still in the processor's cache when it is written."""


@attrs.frozen(kw_only=True)
class WrittenFragment:
    """A fragment as the file beside lists it."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    count: int
    dtype: str
    """As safetensors says it."""
    hash: str
    """xxh3_128 of its bytes."""

    @property
    def key(self) -> str:
        """Its name in the file of tensors."""
        return key_of(self.name, self.kind, self.start)


@attrs.frozen
class WrittenFile:
    """What lies in the file."""

    bytes: int
    hash: str
    """xxh3_128 of the whole file."""
    fragments: tuple[WrittenFragment, ...]


def key_of(name: str, kind: str, start: int) -> str:
    """Of a fragment: `model.norm.weight|exp_avg|4096`."""
    return f"{name}|{kind}|{start}"


def write_fragments(path: Path, fragments: Iterable[Fragment]) -> WrittenFile:
    """Writes them in their own dtype; on disk when this returns. A tensor on a device is copied to the host alone."""
    given = list(fragments)
    header = _header(given)
    with path.open("xb", buffering=0) as file:
        whole = xxhash.xxh3_128()
        for part in (len(header).to_bytes(8, "little"), header):
            whole.update(part)
            file.write(part)
        written = tuple(_write(file, fragment, whole) for fragment in given)
        size = file.tell()
        os.fsync(file.fileno())
    return WrittenFile(size, whole.hexdigest(), written)


def _header(fragments: Sequence[Fragment]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for fragment in fragments:
        if fragment.values.dtype not in DTYPES:
            raise CheckpointError(f"{fragment.name} ({fragment.kind}) is {fragment.values.dtype}, which is not kept")
        key = key_of(fragment.name, fragment.kind, fragment.start)
        if key in entries:
            raise CheckpointError(f"{fragment.name} ({fragment.kind}) came twice from element {fragment.start}")
        begin, end = end, end + fragment.values.numel() * fragment.values.element_size()
        entries[key] = {
            "dtype": DTYPES[fragment.values.dtype],
            "shape": [fragment.values.numel()],
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)  # the data begin at a multiple of 8, as the format asks


def _write(file: BinaryIO, fragment: Fragment, whole: "xxhash.xxh3_128") -> WrittenFragment:
    content = _bytes(fragment.values)
    own = xxhash.xxh3_128()
    for begin in range(0, len(content), CHUNK_BYTES):
        chunk = content[begin : begin + CHUNK_BYTES]
        own.update(chunk)
        whole.update(chunk)
        _write_all(file, chunk)
    return WrittenFragment(
        name=fragment.name,
        kind=fragment.kind,
        shape=fragment.shape,
        start=fragment.start,
        count=fragment.values.numel(),
        dtype=DTYPES[fragment.values.dtype],
        hash=own.hexdigest(),
    )


def _write_all(file: BinaryIO, content: memoryview) -> None:
    """A raw file may take less than it is given."""
    while content:
        content = content[file.write(content) :]


def _bytes(values: Tensor) -> memoryview:
    on_host = values.detach().to("cpu").contiguous()
    return on_host.view(torch.uint8).numpy().data


def hash_of_tensor(values: Tensor) -> str:
    """As `WrittenFragment.hash`."""
    return hash_of(_bytes(values))
