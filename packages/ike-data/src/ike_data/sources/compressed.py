"""The bytes of a file in pieces, unpacked where it is compressed: gzip, zstd, xz or bzip2, known by their first bytes.

Members that follow one another are one text. A stream that is cut or damaged gives what can be unpacked and is then a
BrokenFileError; so is what follows the last member: the readers of the standard library pass over it in silence.
"""

import bz2
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO

import pyarrow as pa

from ike_core.errors import DataError
from ike_data.sources.broken import BrokenFileError
from ike_data.sources.formats import compression_of
from ike_data.sources.paths import SourceFile

PIECE = 1 << 18
"""Bytes handed on at once."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}


_Decompressor = lzma.LZMADecompressor | bz2.BZ2Decompressor
_MEMBERS: dict[str, Callable[[], _Decompressor]] = {
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    "bzip2": bz2.BZ2Decompressor,
}


def read_pieces(file: SourceFile) -> Iterator[bytes]:
    """The bytes of a file, at most PIECE at once, none empty.

    DataError where it can't be opened, or is named after a compression that it does not have; BrokenFileError where the
    stream breaks.
    """
    try:
        kind = _compression(file)
        if kind in _MEMBERS:
            yield from _unpack_members(file.path, kind)
        elif kind:
            yield from _unpack_by_arrow(file.path, kind)
        else:
            with file.path.open("rb") as raw:
                yield from iter(lambda: raw.read(PIECE), b"")
    except OSError as error:
        raise DataError(f"{file.path}: {error.strerror or error}") from error


@contextmanager
def whole_file(file: SourceFile) -> Iterator[Path]:
    """A path to read at random: the file's own, or a temporary file that it is unpacked into."""
    if not _compression(file):
        yield file.path
        return
    with NamedTemporaryFile(suffix=file.path.suffix) as unpacked:
        try:
            for piece in read_pieces(file):
                unpacked.write(piece)
        except BrokenFileError as error:
            raise DataError(f"{file.name}: {error}") from error
        except OSError as error:  # no space left, say
            raise DataError(f"{file.path}: can't be unpacked into {unpacked.name}: {error.strerror}") from error
        unpacked.flush()
        yield Path(unpacked.name)


def _compression(file: SourceFile) -> str:
    try:
        with file.path.open("rb") as raw:
            start = raw.read(6)
    except OSError as error:
        raise DataError(f"{file.path}: {error.strerror}") from error
    found = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")
    said = compression_of(file.path)
    if said and start and found != said:
        what = f"its first bytes are those of {found}" if found else "it is not compressed so"
        raise DataError(f"{file.path}: named {file.path.suffix} ({said}), and {what}; give it the name of what it is")
    return found


def _unpack_members(path: Path, kind: str) -> Iterator[bytes]:
    with path.open("rb") as raw:
        while left := raw.read(PIECE):
            decompressor = _MEMBERS[kind]()
            try:
                yield from _unpack_member(decompressor, left, raw)
            except (OSError, lzma.LZMAError, EOFError) as error:
                raise BrokenFileError(f"the {kind} stream breaks here: {error}") from error
            rest = decompressor.unused_data.lstrip(b"\0")  # xz pads between members
            raw.seek(-len(rest), 1)


def _unpack_member(decompressor: _Decompressor, data: bytes, raw: BinaryIO) -> Iterator[bytes]:
    while not decompressor.eof:
        piece = decompressor.decompress(data, PIECE)
        if piece:
            yield piece
        data = b""
        if decompressor.needs_input and not decompressor.eof:
            data = raw.read(PIECE)
            if not data:
                raise EOFError("it ends before its end mark")


def _unpack_by_arrow(path: Path, kind: str) -> Iterator[bytes]:
    """Arrow's reader loses what it had unpacked of a piece that breaks: that is unpacked anew, byte by byte."""
    unpacked = 0
    try:
        with pa.CompressedInputStream(str(path), kind) as stream:
            while piece := stream.read(PIECE):
                unpacked += len(piece)
                yield piece
    except OSError as error:
        if before_fault := _unpack_to_fault(path, kind, after=unpacked):
            yield before_fault
        raise BrokenFileError(f"the {kind} stream breaks here: {error}") from error


def _unpack_to_fault(path: Path, kind: str, *, after: int) -> bytes:
    found = bytearray()
    with pa.CompressedInputStream(str(path), kind) as stream:
        while after:
            after -= len(stream.read(min(after, PIECE)))
        with suppress(OSError):
            while byte := stream.read(1):
                found += byte
    return bytes(found)
