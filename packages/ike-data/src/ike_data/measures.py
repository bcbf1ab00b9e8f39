"""Measures of what is read in place. Those of token indexes are kept for later runs, beside the stores, by a key."""

import shutil
from pathlib import Path
from uuid import uuid4

from ike_core.errors import DataError
from ike_core.interfaces import Source
from ike_data.in_place import InPlace
from ike_data.kept import Builder
from ike_data.keying.key import Key
from ike_data.measuring import measure
from ike_data.store.manifest import DamageError, Manifest

SUFFIX = ".in-place"


def measured(builder: Builder, sources: tuple[Source, ...], own: Path) -> InPlace:
    """The sources' examples. What a user's own Source gives, and what has no key, is measured each time, into `own`.

    DataError where an example can't be read, or files change meanwhile.
    """
    try:
        key = builder.key()
        if key.reason or not isinstance(builder.request.files, (list, tuple)):
            _measure(builder, sources, own, key)
            return InPlace.open(own, sources, builder.request.preparation)
        folder = builder.cache / f"{key.name}{SUFFIX}"
        if not _is_whole(folder):
            _keep(builder, sources, folder, key)
    except OSError as error:
        raise DataError(builder.unwritable(error)) from error
    return InPlace.open(folder, sources, builder.request.preparation)


def _is_whole(folder: Path) -> bool:
    """Removes what is damaged."""
    try:
        Manifest.read(folder).check_content(folder)
    except (DamageError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        return False
    return True


def _keep(builder: Builder, sources: tuple[Source, ...], folder: Path, key: Key) -> None:
    """Whoever else measures the same meanwhile comes to the same: the first stays."""
    partial = folder.with_name(f"{folder.name}.{uuid4().hex}.partial")
    try:
        _measure(builder, sources, partial, key)
        if builder.key() != key:
            raise DataError(f"{builder.name} data: its files changed while they were read")
        partial.rename(folder)
    except OSError:
        if not _is_whole(folder):
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _measure(builder: Builder, sources: tuple[Source, ...], folder: Path, key: Key) -> None:
    request = builder.request
    measure(
        sources,
        request.preparation,
        folder,
        limit=request.limit,
        description=key.description,
        progress=builder.progress,
    )
