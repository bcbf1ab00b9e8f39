"""Paths are relative to the file that says them, and absolute once resolved. A model may also be a name on the hub."""

import glob
import os
import re
from pathlib import Path
from typing import Any, TypeGuard

from ike_core.config.keys import Key, at, put
from ike_core.config.problems import Problems
from ike_core.config.provenance import Provenance, absolute
from ike_core.config.schema import places

_HUB_DATASET = "hf://"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
"""name or owner/name"""


def resolve_files(tree: dict[str, Any], provenance: Provenance) -> None:
    """Makes every path in a `files` absolute; the folder's own brackets and stars are no pattern."""
    for place in list(places(tree)):
        if place.key[-1] == "files" and isinstance(place.value, list):
            folder = Path(glob.escape(str(provenance.origin(place.key).folder)))
            files = [absolute(item, folder) if _is_path(item) else item for item in place.value]
            put(tree, place.key, files)


def _is_path(item: object) -> TypeGuard[str]:
    return isinstance(item, str) and not item.startswith(_HUB_DATASET)


def resolve_models(tree: dict[str, Any], provenance: Provenance, problems: Problems) -> None:
    """`path` of ike's own models and tokenizers: an existing folder or .gguf file, else a name on the hub."""
    frozen = tree.get("frozen")
    names = list(frozen) if isinstance(frozen, dict) else []
    for table in [("model",), ("tokenizer",), *(("frozen", name) for name in names)]:
        key: Key = (*table, "path")
        try:
            path, uses = at(tree, key), at(tree, (*table, "uses"))
        except KeyError:
            continue
        if isinstance(path, str) and isinstance(uses, str) and uses.startswith("ike_"):
            _resolve_model(tree, key, path, provenance, problems)


def _resolve_model(tree: dict[str, Any], key: Key, path: str, provenance: Provenance, problems: Problems) -> None:
    tried = absolute(path, provenance.origin(key).folder)
    if os.path.isdir(tried) or (tried.endswith(".gguf") and os.path.isfile(tried)):
        put(tree, key, tried)
    elif path.endswith(".gguf") or not _HUB_NAME.fullmatch(path):
        found = "is a file that is no .gguf" if os.path.isfile(tried) else "does not exist"
        problems.add(key, f' = "{path}": {tried} {found}, and this is no name on the hub (name, or owner/name)')
