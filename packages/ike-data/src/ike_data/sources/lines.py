"""Lines of a file as UTF-8 bytes with their numbers, whatever it was written with.

The encoding is decided once, by the first bytes: UTF-8 with or without a byte-order mark, or UTF-16 by its mark. Only
"\\n" ends a line (U+2028, U+0085 and their like are content). Gzip is known by its magic number; members that follow
one another are one text.
"""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator

from ike_core.errors import DataError
from ike_data.sources.paths import SourceFile

_GZIP = b"\x1f\x8b"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


def read_lines(file: SourceFile) -> Iterator[tuple[int, bytes]]:
    """(number from 1, the line without white space around it). Blank lines are not yielded, but count.

    Bytes that are not UTF-8 are handed on: whoever parses the line names it. DataError for a file that can't be read
    on at all: a cut gzip stream, a UTF-16 text with a broken character, UTF-16 or UTF-32 that ike does not know.
    """
    for number, line in _whole_lines(file):
        content = line.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n")  # files joined by `cat` keep their marks inside
        if content:
            yield number, content


def read_text(file: SourceFile) -> str:
    """The whole file. DataError where it is not valid to the last byte."""
    lines = []
    for number, line in _whole_lines(file):
        try:
            lines.append(line.removeprefix(codecs.BOM_UTF8).decode())
        except UnicodeDecodeError as error:
            reason = f"byte {error.start + 1} of the line is not UTF-8: {error.reason}"
            raise DataError(f"{file.name}:{number}: {reason}") from error
    return "".join(lines)


def _whole_lines(file: SourceFile) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with file.path.open("rb") as raw:
            for number, line in enumerate(_utf8_lines(file, _unpacked(raw)), 1):
                yield number, line
    except UnicodeDecodeError as error:
        raise DataError(f"{file.name}:{number + 1}: not {error.encoding}: {error.reason}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file.name}:{number + 1}: the gzip stream breaks here: {error}") from error
    except OSError as error:
        raise DataError(f"{file.path}: {error.strerror}") from error


def _unpacked(raw: io.BufferedReader) -> io.BufferedReader:
    if not raw.peek(2).startswith(_GZIP):
        return raw
    return io.BufferedReader(gzip.GzipFile(fileobj=raw))


def _utf8_lines(file: SourceFile, stream: io.BufferedReader) -> Iterable[bytes]:
    start = stream.peek(4)[:4]
    if start.startswith(_UTF32) or (b"\0" in start and not start.startswith(_UTF16)):
        raise DataError(f"{file.name}: neither UTF-8 nor UTF-16 with a byte-order mark; write it anew as UTF-8")
    if start.startswith(_UTF16):
        text = io.TextIOWrapper(stream, encoding="utf-16", newline="\n")
        return (line.encode() for line in text)
    return stream
