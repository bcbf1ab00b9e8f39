"""Lines of a file as UTF-8 bytes with their numbers.

Only "\\n" ends a line: U+2028, U+0085 and their like are content.
"""

import codecs
from collections.abc import Iterator

from ike_core.errors import DataError
from ike_data.sources.broken import BrokenFileError
from ike_data.sources.formats import Format
from ike_data.sources.limits import check_row
from ike_data.sources.paths import SourceFile
from ike_data.sources.utf8 import utf8_pieces


def read_lines(file: SourceFile, expected: Format) -> Iterator[tuple[int, bytes]]:
    """(number from 1, the line without white space around it). Blank lines are not yielded, but count.

    Bytes that are not UTF-8 are handed on: whoever parses the line names it. DataError with the line where the file
    can't be read on.
    """
    for number, line in whole_lines(file, expected):
        content = line.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n")  # files joined by `cat` keep their marks inside
        if content:
            yield number, content


def whole_lines(file: SourceFile, expected: Format) -> Iterator[tuple[int, bytes]]:
    """(number from 1, the line without its newline), blank ones too; errors as in `read_lines`."""
    number = 0
    try:
        for number, line in enumerate(_split(utf8_pieces(file, expected)), 1):
            yield number, line
    except BrokenFileError as error:
        raise DataError(f"{file.name}:{number + 1}: {error}") from error


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        lines = piece.split(b"\n")
        begun.append(lines[0])
        if len(lines) == 1:
            size += len(piece)
            check_row(size, "the line")
            continue
        yield b"".join(begun)
        yield from lines[1:-1]
        begun, size = [lines[-1]], len(lines[-1])
    if last := b"".join(begun):
        yield last
