"""Files that are not what their name says, known by their first bytes."""

import re
from typing import NoReturn

from ike_core.errors import DataError
from ike_data.sources.formats import Format
from ike_data.sources.paths import SourceFile

ENOUGH = 512
"""Bytes at the start that are looked at."""
ARROW_FILE, ARROW_STREAM, PARQUET = b"ARROW1", b"\xff\xff\xff\xff", b"PAR1"
_MAGIC = {
    PARQUET: "a Parquet file; name it .parquet",
    ARROW_FILE: "an Arrow file; name it .arrow",
    ARROW_STREAM: "an Arrow stream; name it .arrow",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"\x93NUMPY": "a numpy array; name it .npy",
    b"MMIDIDX": "the index of a Megatron token index; name it .idx",
    b"\x89HDF\r\n": "an HDF5 file; write its rows as JSON lines or Parquet",
    b"SQLite format 3": "an SQLite database; write its rows as JSON lines or Parquet",
    b"%PDF": "a PDF; write its text as JSON lines",
    b"version https://git-lfs.github.com/": "a pointer of Git LFS and not the data; `git lfs pull` fetches it",
}
_HTML = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html\b)", re.IGNORECASE)


def refuse_other_kinds(file: SourceFile, start: bytes, expected: Format) -> None:
    """DataError where the first bytes are known to be something else than the rows they are taken for."""
    for magic, what in _MAGIC.items():
        if start.startswith(magic):
            raise DataError(f"{file.path}: expected {expected}, and its first bytes are those of {what}")
    if expected is not Format.TEXT and _HTML.match(start):
        raise DataError(
            f"{file.path}: expected {expected}, and it is a page of HTML (`{_shown(start)}`); "
            "look at it: what a server answers in a file's stead often says why"
        )


def refuse_unknown(file: SourceFile, start: bytes, expected: Format) -> NoReturn:
    """The DataError of a file whose first bytes are not those that `expected` begins with."""
    refuse_other_kinds(file, start, expected)
    raise DataError(
        f"{file.path}: expected {expected}, and it {f'begins with `{_shown(start)}`' if start else 'is empty'}"
    )


def _shown(start: bytes) -> str:
    text = start[:40].decode("latin-1")
    return "".join(letter if letter.isprintable() else "." for letter in text)
