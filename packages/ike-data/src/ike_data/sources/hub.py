"""Datasets of the hub as files: the datasets library fetches and keeps them as Arrow, which ike reads as it is."""

import re
from pathlib import Path
from typing import Any

from ike_core.errors import DataError

SCHEME = "hf://"
_FORM = "hf://owner/name[/config][:split]"
_NAME = re.compile(r"hf://(?P<path>[\w.-]+/[\w.-]+)(/(?P<config>[\w.-]+))?(:(?P<split>\w+(\.\w+)*))?")


def hub_files(name: str) -> list[Path]:
    """The files in the library's cache that hold one split, in their order; fetched first where they are not there.

    `hf://owner/name[/config][:split]`; a split need not be said where there is one. DataError where the library is
    missing, the hub can't be reached, or it has no such dataset, configuration or split.
    """
    said = _NAME.fullmatch(name)
    if said is None:
        raise DataError(f"{name} is no {_FORM}")
    found = _load(name, said["path"], said["config"])
    splits = list(found)
    split = said["split"] or (splits[0] if len(splits) == 1 else "")
    if split not in splits:
        wanted = f"has no split {split!r}" if split else "has several splits"
        raise DataError(f"{name} {wanted}; say one of {', '.join(splits)}: {_FORM}")
    return [Path(file["filename"]) for file in found[split].cache_files]


def _load(name: str, path: str, config: str | None) -> Any:
    try:
        import datasets  # an extra, and seconds to import
    except ImportError as error:
        raise DataError(f'{name} needs the datasets library: pip install "ike-data[hub]"') from error
    try:
        return datasets.load_dataset(path, config)
    except Exception as error:  # of the library, of what it fetches with, and of the network: there is no common one
        reason = f"{type(error).__name__}: {_one_line(error)}"
        raise DataError(f"{name} can't be loaded (once fetched, it needs no network): {reason}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
