"""Folders that are whole or absent: written beside, flushed, renamed last."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PARTIAL = ".partial"
"""Ends the name of a folder that is being written, or being removed."""
REPLACED = ".replaced"
"""Ends the name of a whole folder while another takes its place."""


def partial_of(folder: Path) -> Path:
    """Where a folder is written before it has its name."""
    return folder.with_name(folder.name + PARTIAL)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Gives `<folder>.partial` to write into; on success it becomes `folder`, else it is gone. For one process."""
    partial = partial_of(folder)
    partial.mkdir(parents=True)
    try:
        yield partial
        put_in_place(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def put_in_place(folder: Path) -> None:
    """What lies in `<folder>.partial` is flushed to disk and becomes `folder`.

    A folder of that name stays until the new one is complete. What a killed process left is cleared by `recover`.
    """
    partial = partial_of(folder)
    flush(partial)
    replaced = folder.with_name(folder.name + REPLACED)
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    sync_folder(folder.parent)
    remove_whole(replaced)


def remove_whole(folder: Path) -> None:
    """Removes a complete folder so that a kill halfway leaves nothing that looks complete."""
    if not folder.exists():
        return
    partial = partial_of(folder)
    folder.rename(partial)
    shutil.rmtree(partial)


def recover(parent: Path, pattern: str) -> None:
    """Clears what killed processes left of folders whose names match the glob `pattern`.

    A whole folder that was moved aside, but whose successor never came, is put back.
    """
    for replaced in parent.glob(pattern + REPLACED):
        original = replaced.with_name(replaced.name.removesuffix(REPLACED))
        if original.exists():
            remove_whole(replaced)
        else:
            replaced.rename(original)
    for partial in parent.glob(pattern + PARTIAL):
        shutil.rmtree(partial)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Strict JSON (no NaN), whole or absent, on disk when this returns."""
    beside = path.with_name(path.name + PARTIAL)
    beside.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    _sync(beside)
    beside.replace(path)
    sync_folder(path.parent)


def flush(folder: Path) -> None:
    """Returns when every file and folder in it is on disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            _sync(Path(root, name))
        sync_folder(Path(root))


def sync_folder(folder: Path) -> None:
    """Returns when the names in a folder are on disk."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
