"""Hashes of files, kept between runs: 100 GB that nobody has touched are not read again at each start."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import orjson
from xxhash import xxh3_128

from ike_data.store.atomic import replace
from ike_data.store.hashing import hash_file

SETTLED_SECONDS = 2.0
"""A file that was written to less than this ago may be written to again without its time of change telling."""


@attrs.frozen
class ContentHashes:
    """Remembers hashes in a folder, a small file each."""

    folder: Path

    def of(self, path: Path) -> str:
        """xxh3-128 of the file's content. OSError where it can't be read."""
        known = self.folder / f"{xxh3_128(str(path.resolve()).encode()).hexdigest()}.json"
        before = _facts(path)
        try:
            remembered = orjson.loads(known.read_bytes())
            if remembered["facts"] == before:
                return str(remembered["hash"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not known, or not readable: it is read
        content = hash_file(path)
        if _facts(path) == before and time.time() - path.stat().st_mtime > SETTLED_SECONDS:
            with suppress(OSError):  # a cache that can't be written to is told by who writes the store
                self.folder.mkdir(parents=True, exist_ok=True)
                replace(known, orjson.dumps({"path": str(path), "facts": before, "hash": content}))
        return content


def _facts(path: Path) -> list[Any]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_dev]
