"""The files of a folder that are meant by naming it."""

import os
from collections import Counter
from pathlib import Path

from ike_core.errors import DataError
from ike_data.sources.formats import FORMATS, KINDS, Format, compression_of, format_of


def folder_files(folder: Path) -> list[Path]:
    """Every file beneath that ike reads, in the order of their paths; not what begins with a dot or an underscore.

    DataError where there is none, or where they are of several formats: a README.txt beside Parquet is no data, and
    nobody but the user can tell.
    """
    found = sorted(path for path in _beneath(folder) if format_of(path) and not is_offsets(path))
    if not found:
        raise DataError(f"{folder} has no files that ike reads ({KINDS})")
    counted = Counter(_suffix(path) for path in found)
    if len({FORMATS[suffix] for suffix in counted}) > 1:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in counted.most_common())
        example = folder / f"*{counted.most_common(1)[0][0]}"
        raise DataError(f"{folder} has files of several formats ({kinds}); say which are meant, such as {example}")
    return found


def is_offsets(path: Path) -> bool:
    """Whether it belongs to an array of tokens: `corpus.offsets.npy` beside `corpus.npy`."""
    return format_of(path) is Format.TOKEN_ARRAY and path.stem.endswith(".offsets")


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()


def _beneath(folder: Path) -> list[Path]:
    """Links to folders are followed, each folder entered once."""
    files: list[Path] = []
    entered: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in entered:
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        files += [Path(place, name) for name in names if name[0] not in "._"]
    return files


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} can't be listed: {error.strerror}") from error


def offsets_of(path: Path) -> Path:
    """Where the documents of an array of tokens are."""
    return path.with_suffix(".offsets.npy")
