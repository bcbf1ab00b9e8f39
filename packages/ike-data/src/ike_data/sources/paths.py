"""Which files are meant: paths, folders, globs and hub datasets to files, each with the shortest name that tells it
from the others."""

import glob
import os
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

import attrs

from ike_core.errors import DataError
from ike_data.sources.folders import folder_files, is_offsets, offsets_of
from ike_data.sources.formats import KINDS, Format, format_of
from ike_data.sources.hub import SCHEME, hub_files


@attrs.frozen
class SourceFile:
    """A file to read."""

    path: Path
    """Absolute."""
    name: str
    """What rows are called by: `train.jsonl`, or `a/train.jsonl` where another file has the same name."""

    @property
    def format(self) -> Format:
        """DataError where the file's kind is not one that ike reads."""
        found = format_of(self.path)
        if found is None:
            raise DataError(f"{self.path}: not a kind of file that ike reads ({KINDS})")
        return found

    @property
    def paths(self) -> tuple[Path, ...]:
        """The file, and what a token index has beside it."""
        if self.format is Format.MEGATRON:
            return self.path, self.path.with_suffix(".bin")
        return (self.path, offsets_of(self.path)) if self.format is Format.TOKEN_ARRAY else (self.path,)


def find_files(patterns: Sequence[str]) -> tuple[SourceFile, ...]:
    """The files of paths, folders, globs and `hf://` names, in the order given; each file once.

    A glob's are in the order of their names; of a folder all readable files beneath are meant, and so they are where a
    glob matches folders alone. A token index is its `.idx` or its tokens' `.npy`, whichever of its files is named, or
    the path without `.idx`. DataError where a path does not exist, a glob matches nothing, or a file's kind is not one
    that ike reads.
    """
    if not patterns:
        raise DataError("no files to read: `files` is empty")
    found = dict.fromkeys(path for pattern in patterns for path in _matches(pattern))
    files = _named(list(found))
    for file in files:
        file.format  # noqa: B018  # refuses here what would be refused when it is read
    return files


def _matches(pattern: str) -> list[Path]:
    if pattern.startswith(SCHEME):
        return hub_files(pattern)
    path = Path(pattern).absolute()
    if path.is_dir():
        return folder_files(path)
    if path.exists():
        return [_main_file(path)]
    if glob.has_magic(pattern):
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        files = [_main_file(match) for match in matches if match.is_file()]
        files = files or [file for match in matches for file in folder_files(match)]
        if files:
            return files
        raise DataError(f"no file matches {path}{_near(path)}")
    index = path.with_name(f"{path.name}.idx")  # Megatron's tools name a token index so
    if index.exists():
        return [index]
    raise DataError(f"{path} does not exist{_near(path)}")


def _main_file(path: Path) -> Path:
    """The file that stands for a token index, where this belongs to one."""
    index = path.with_suffix(".idx")
    if path.suffix == ".bin" and index.exists():
        return index
    return path.with_name(path.name.removesuffix(".offsets.npy") + ".npy") if is_offsets(path) else path


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


def _named(paths: list[Path]) -> tuple[SourceFile, ...]:
    parts = 1
    while len(_tails(paths, parts)) < len(paths):
        parts += 1
    return tuple(SourceFile(path, "/".join(path.parts[-parts:])) for path in paths)


def _tails(paths: Iterable[Path], parts: int) -> set[tuple[str, ...]]:
    return {path.parts[-parts:] for path in paths}
