"""Which files are meant: paths and globs to files, each with the shortest name that tells it from the others."""

import glob
import os
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

import attrs

from ike_core.errors import DataError

READABLE = (".jsonl", ".ndjson", ".json")
"""Each also with `.gz` behind it."""


@attrs.frozen
class SourceFile:
    """A file to read."""

    path: Path
    """Absolute."""
    name: str
    """What rows are called by: `train.jsonl`, or `a/train.jsonl` where another file has the same name."""


def find_files(patterns: Sequence[str]) -> tuple[SourceFile, ...]:
    """The files of paths and globs, in the order given; a glob's in the order of their names; each file once.

    DataError where a path does not exist, a glob matches nothing, or a file's kind is not one that ike reads.
    """
    if not patterns:
        raise DataError("no files to read: `files` is empty")
    found = dict.fromkeys(path for pattern in patterns for path in _matches(pattern))
    for path in found:
        _check_kind(path)
    return _named(list(found))


def _matches(pattern: str) -> list[Path]:
    path = Path(pattern).absolute()
    if path.is_dir():
        raise DataError(f"{path} is a folder; name its files, such as {path / '*.jsonl'}")
    if path.exists():
        return [path]
    if glob.has_magic(pattern):
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        files = [match for match in matches if match.is_file()]
        if files:
            return files
        raise DataError(f"no file matches {path}{_near(path)}")
    raise DataError(f"{path} does not exist{_near(path)}")


def _near(path: Path) -> str:
    """What is there instead: close names in the last folder of the path that exists."""
    folder, wanted = path.parent, path.name
    while not folder.is_dir() and folder != folder.parent:
        folder, wanted = folder.parent, folder.name
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        return f" ({folder} can't be listed: {error.strerror})"
    close = get_close_matches(wanted, names, n=3, cutoff=0.5)
    if close:
        return f"; {folder} has {', '.join(close)}"
    if folder != path.parent:
        return f"; the folder {folder} has no {wanted}"
    return f"; {folder} is empty" if not names else f"; {folder} has {', '.join(names[:5])}"


def _check_kind(path: Path) -> None:
    name = path.name.lower().removesuffix(".gz")
    if not name.endswith(READABLE):
        kinds = ", ".join(READABLE)
        raise DataError(f"{path}: not a kind of file that ike reads ({kinds}, or one of them with .gz)")


def _named(paths: list[Path]) -> tuple[SourceFile, ...]:
    parts = 1
    while len(_tails(paths, parts)) < len(paths):
        parts += 1
    return tuple(SourceFile(path, "/".join(path.parts[-parts:])) for path in paths)


def _tails(paths: Iterable[Path], parts: int) -> set[tuple[str, ...]]:
    return {path.parts[-parts:] for path in paths}
