"""What has a length and gives any of its examples or rows at once: token indexes, and the user's own."""

from pathlib import Path

from ike_core.errors import DataError
from ike_core.interfaces import Source
from ike_data.sources.formats import TOKEN_INDEXES, Format
from ike_data.sources.megatron import MegatronIndex
from ike_data.sources.paths import SourceFile, find_files
from ike_data.sources.token_array import TokenArray

WAY_OUT = (
    "ike asks for any example at any step, on every rank and after a resume, which a stream can't give: have `ike-data "
    "prepare` read it once, with the same settings, or write its rows to a file (JSON lines or Parquet) and name that"
)


def open_source(given: str | Path | SourceFile | object) -> Source:
    """A token index by its file, or a part of the user's own, checked.

    A token index (`find_files` gives it as one file, whose `format` is in TOKEN_INDEXES) holds Examples already: each
    is a document, its `index` the place, its `source` `corpus.idx:17`, its tokens views into the mapped file, of the
    file's own integer type. They are not to be copied into a store; `size(i)` says how long one is without reading it.
    A user's Source gives Examples, which are taken as they are, or Records, which go through the processor.

    DataError where a file holds rows (`read_rows` reads those), or where an object has no length or no random access.
    """
    if isinstance(given, str | Path):
        (given,) = find_files([str(given)])
    if isinstance(given, SourceFile):
        return _token_index(given)
    if isinstance(given, Source):
        return given
    kind = type(given).__name__
    missing = " and ".join(name for name in ("__len__", "__getitem__") if not hasattr(given, name))
    raise DataError(f"{kind} is no source: it has no {missing}. {WAY_OUT}")


def _token_index(file: SourceFile) -> Source:
    if file.format not in TOKEN_INDEXES:
        raise DataError(f"{file.path}: {file.format} holds rows, which a processor reads; it is no source of examples")
    if file.format is Format.MEGATRON:
        return MegatronIndex.open(file.path, file.name)
    return TokenArray.open(file.path, file.name)
