"""The records of a user's own Source, as rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ike_core.errors import DataError, IkeError
from ike_core.interfaces import Source
from ike_data.sources.opening import open_source
from ike_data.sources.row import Row


def own_source(files: Sequence[str] | Source) -> Source | None:
    """A user's Source; None where it is names of files, or a stream. DataError where it is nothing of that."""
    return None if isinstance(files, (list, tuple)) or is_stream(files) else open_source(files)


def is_stream(files: object) -> bool:
    """Whether it is a user's own that can only be read from start to end, which `ike-data prepare` does once."""
    return isinstance(files, Iterable) and not isinstance(files, (list, tuple, str, Source))


def stream_rows(stream: Iterable[object], *, limit: int = 0) -> Iterator[Row]:
    """All records, or the first `limit`, in order; rows are called `Mine[17]`. DataError as `source_row` raises it."""
    kind, records, index = type(stream).__name__, iter(stream), 0
    while not limit or index < limit:
        try:
            record = next(records)
        except StopIteration:
            return
        except IkeError:
            raise
        except Exception as error:
            raise DataError(f"{kind}[{index}] raised {type(error).__name__}: {error}") from error
        if not isinstance(record, Mapping):
            raise DataError(f"{kind}[{index}] is a {type(record).__name__}; a stream gives records (mappings)")
        yield f"{kind}[{index}]", record
        index += 1


def source_rows(source: Source, *, limit: int = 0) -> Iterator[Row]:
    """All records, or the first `limit`, in order; rows are called `Mine[17]`. DataError as `source_row` raises it."""
    for index in range(min(limit or len(source), len(source))):
        yield source_row(source, index)


def source_row(source: Source, index: int) -> Row:
    """DataError where the source raises, or gives what is no record."""
    name = f"{type(source).__name__}[{index}]"
    try:
        record = source[index]
    except IkeError:
        raise
    except Exception as error:
        raise DataError(f"{name} raised {type(error).__name__}: {error}") from error
    if not isinstance(record, Mapping):
        raise DataError(f"{name} is a {type(record).__name__}; a source gives records (mappings), or examples only")
    return name, record
