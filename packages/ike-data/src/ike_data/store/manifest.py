"""`store.json`: what a store holds, written when all of it is on disk; and whether it still holds it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson
from xxhash import xxh3_64

from ike_core.errors import DataError
from ike_data.ledger import Tally
from ike_data.store.atomic import replace
from ike_data.store.hashing import hash_file

VERSION = 4
"""Of the format, and so of the key: another version is another store."""
NAME = "store.json"


class DamageError(DataError):
    """A store is not what was written."""


@attrs.frozen
class FileFacts:
    """One file of a store."""

    name: str
    typecode: str
    """Of `array`; 'B' for files that are no column."""
    size: int
    """Bytes."""
    hash: str = ""
    """xxh3-128 of its content, hexadecimal."""


@attrs.frozen(kw_only=True)
class Manifest:
    """What a store holds."""

    columns: Mapping[str, FileFacts]
    others: Mapping[str, FileFacts]
    """Its ledger and the rows that are processed afresh at each start."""
    tally: Tally
    description: Mapping[str, Any]
    """What the store's key is made of."""

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Raises DamageError where there is none, or another than was written."""
        try:
            written = orjson.loads((folder / NAME).read_bytes())
            body = written["store"]
            if written["hash"] != _hash(body):
                raise ValueError("its content is not what was written")
            return cls(
                columns={name: FileFacts(**facts) for name, facts in body["columns"].items()},
                others={name: FileFacts(**facts) for name, facts in body["others"].items()},
                tally=Tally.of(body["tally"]),
                description=body["description"],
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamageError(f"{folder / NAME} can't be read: {error}") from error

    def write(self, folder: Path) -> None:
        """Whole or not at all."""
        body = orjson.loads(orjson.dumps(attrs.asdict(self)))
        replace(folder / NAME, orjson.dumps({"store": body, "hash": _hash(body)}))

    def check_sizes(self, folder: Path) -> None:
        """Raises DamageError; looks at no content."""
        for facts in (*self.columns.values(), *self.others.values()):
            try:
                size = (folder / facts.name).stat().st_size
            except OSError as error:
                raise DamageError(f"{folder / facts.name}: {error.strerror}") from error
            if size != facts.size:
                raise DamageError(f"{folder / facts.name} has {size} bytes instead of {facts.size}")

    def check_content(self, folder: Path) -> None:
        """Raises DamageError; reads every byte, at 10 GB/s where the system still holds them."""
        for facts in (*self.columns.values(), *self.others.values()):
            if hash_file(folder / facts.name) != facts.hash:
                raise DamageError(f"{folder / facts.name}: its content is not what was written")


def _hash(body: Any) -> str:
    return xxh3_64(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
