"""Plain text: a file is a document, and so one row."""

from collections.abc import Iterator

from ike_core.errors import DataError
from ike_core.examples import Skip
from ike_data.sources.broken import BrokenFileError
from ike_data.sources.formats import Format
from ike_data.sources.limits import LONGEST_ROW
from ike_data.sources.paths import SourceFile
from ike_data.sources.row import Row
from ike_data.sources.utf8 import utf8_pieces


def text_rows(file: SourceFile) -> Iterator[Row]:
    """`{"text": ...}`, the whole file, its line ends "\\n"; a Skip naming line and byte where it is not UTF-8.

    DataError where it is too long for one row: nobody can guess where its documents end.
    """
    text = bytearray()
    try:
        for piece in utf8_pieces(file, Format.TEXT):
            text += piece
            if len(text) > LONGEST_ROW:
                raise DataError(
                    f"{file.path}: a text file is one document, and this one is longer than {LONGEST_ROW >> 20} MiB; "
                    'write it as JSON lines, {"text": ...} a document'
                )
    except BrokenFileError as error:
        line = text.count(b"\n") + 1
        raise DataError(f"{file.name}:{line}: {error}") from error
    yield _row(f"{file.name}:1", text)


def _row(source: str, text: bytearray) -> Row:
    try:
        return source, {"text": text.decode().replace("\r\n", "\n")}
    except UnicodeDecodeError as error:
        line, byte = text.count(b"\n", 0, error.start) + 1, error.start - text.rfind(b"\n", 0, error.start)
        return source, Skip(f"not UTF-8: {error.reason} at byte {byte} of line {line}", source)
