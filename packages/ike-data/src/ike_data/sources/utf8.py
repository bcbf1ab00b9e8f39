"""The text of a file as UTF-8 bytes in pieces, whatever it was written with.

The encoding is decided once, by the first bytes: UTF-8 with or without a byte-order mark, or UTF-16 by its mark.
"""

import codecs
from collections.abc import Iterator
from itertools import chain

from ike_core.errors import DataError
from ike_data.sources.broken import BrokenFileError
from ike_data.sources.compressed import read_pieces
from ike_data.sources.first_bytes import ENOUGH, refuse_other_kinds
from ike_data.sources.formats import Format
from ike_data.sources.paths import SourceFile

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_SHIFTED_NEWLINE = "\u0a00"
"""What UTF-16 makes of a newline after a byte was lost. No character has this code: all behind it would be nonsense."""
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


def utf8_pieces(file: SourceFile, expected: Format) -> Iterator[bytes]:
    """The file without the byte-order mark it starts with. Bytes that are not UTF-8 are handed on to who parses them.

    DataError where the first bytes are of another kind of file, or of an encoding that ike does not read.
    BrokenFileError where it can't be read on: a cut stream, a UTF-16 text with a broken character.
    """
    pieces = read_pieces(file)
    start = b""
    while len(start) < ENOUGH and (piece := next(pieces, b"")):
        start += piece
    refuse_other_kinds(file, start, expected)
    if start.startswith(_UTF32) or (b"\0" in start[:4] and not start.startswith(tuple(_UTF16))):
        byte = start.find(b"\0") + 1
        what = "UTF-32" if start.startswith(_UTF32) else f"byte {byte} is 0"
        raise DataError(f"{file.name}:1: {what}: neither UTF-8 nor UTF-16 with a byte-order mark; write it as UTF-8")
    if encoding := _UTF16.get(start[:2]):
        return _transcoded(chain([start[2:]], pieces), encoding)
    return chain([start.removeprefix(codecs.BOM_UTF8)], pieces)


def _transcoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    done = 2  # the mark
    for piece in chain(pieces, [b""]):
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            yield error.object[: error.start].decode(encoding).encode()
            byte = done - pending + error.start + 1
            raise BrokenFileError(f"not {error.encoding}: {error.reason} at byte {byte} of the file") from error
        if (shifted := text.find(_SHIFTED_NEWLINE)) >= 0:
            yield text[:shifted].encode()
            byte = done - pending + len(text[:shifted].encode(encoding)) + 1
            raise BrokenFileError(f"a line end at odd bytes ({byte} of the file): a byte before it was lost")
        yield text.encode()
        done += len(piece)
