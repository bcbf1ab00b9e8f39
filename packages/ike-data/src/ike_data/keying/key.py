"""What a store is called by: all that decides what is in it."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import orjson
from xxhash import xxh3_128

from ike_core.errors import DataError
from ike_core.interfaces import DataProcessor, Source
from ike_data.keying.contents import ContentHashes
from ike_data.keying.modules import NoSourceError, Sources
from ike_data.keying.values import Describer, IndescribableError
from ike_data.source_rows import is_stream
from ike_data.sources.paths import find_files
from ike_data.store.manifest import VERSION

_BUILDING = ("ike_data.building", "ike_data.measuring")
"""What reads, fits and packs rows, or measures them; its source counts as a processor's does."""


@attrs.frozen
class Key:
    """The name of a store, or why there is none."""

    description: Mapping[str, Any]
    """All of it, readable."""
    reason: str = ""
    """Why a store of this can't be told from others, and so can't be kept; '' where it can."""

    @property
    def name(self) -> str:
        """xxh3-128 of the description, hexadecimal."""
        return xxh3_128(orjson.dumps(self.description, option=orjson.OPT_SORT_KEYS)).hexdigest()


def key_of(
    files: Sequence[str] | Source,
    processor: DataProcessor,
    *,
    limit: int,
    max_tokens: int,
    too_long: str,
    hashes: ContentHashes,
) -> Key:
    """DataError where a file can't be read."""
    describer, sources = Describer(hashes.of), Sources()
    try:
        described = describer.describe(processor, type(processor).__name__)
        contents: list[Any]
        if isinstance(files, (list, tuple)):
            contents = [[file.name, *map(hashes.of, file.paths)] for file in find_files(files)]
        else:
            contents = [describer.describe(files, type(files).__name__), None if is_stream(files) else len(files)]
        for module in _BUILDING:
            sources.follow(module)
        for kind in sorted(describer.classes, key=lambda kind: (kind.__module__, kind.__qualname__)):
            sources.follow_class(kind)
    except (IndescribableError, NoSourceError) as error:
        return Key({}, str(error))
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error
    return Key(
        {
            "version": VERSION,
            "files": contents,
            "processor": described,
            "sources": sources.hashes,
            "limit": limit,
            "max_tokens": max_tokens,
            "too_long": too_long,
        }
    )
