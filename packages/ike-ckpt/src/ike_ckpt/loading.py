"""A step's training state, verified before anything is taken from it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ike_ckpt.manifest import Manifest
from ike_ckpt.parts import read_parts
from ike_ckpt.rank_state import FOLDER
from ike_ckpt.ranks import Speaks, agree, agree_all
from ike_ckpt.state_reader import StateReader
from ike_core.errors import CheckpointError
from ike_core.interfaces import LoadedStep
from ike_core.progress import Drawn, Progress

PROGRESS = "progress.json"


def load_step(ranks: Speaks, step: Path) -> LoadedStep:
    """Collective: CheckpointError on every rank, naming the file, where anything is not as it was written.

    Each file is hashed by one rank: its own where as many ranks wrote it, so that what it reads is read once.
    """
    found: list[Manifest] = []
    agree_all(ranks, _tried(lambda: found.append(Manifest.read(step))))
    (manifest,) = found
    agree(ranks, _tried(lambda: manifest.check_sizes(step)) if ranks.is_first else "")
    agree_all(ranks, _tried(lambda: manifest.check_hashes(step, _share(manifest, ranks))))
    loaded: list[LoadedStep] = []
    agree_all(ranks, _tried(lambda: loaded.append(_loaded(step))))
    return loaded[0]


def _share(manifest: Manifest, ranks: Speaks) -> list[str]:
    """What this rank hashes: the files of the ranks r, r + size ..., and its share of the others."""
    own, others = [], []
    for name in manifest.files:
        stem = name.removeprefix(f"{FOLDER}/rank-").partition(".")[0]
        if name.startswith(f"{FOLDER}/rank-") and stem.isdigit():
            own += [name] if int(stem) % ranks.size == ranks.rank else []
        else:
            others.append(name)
    return own + others[ranks.rank :: ranks.size]


def _loaded(step: Path) -> LoadedStep:
    reader = StateReader(step)
    record = read_progress(step)
    assert reader.counters is not None
    return LoadedStep(fragments=reader, progress=progress_of(record), facts=record, parts=read_parts(step / FOLDER))


def read_progress(step: Path) -> dict[str, Any]:
    """`progress.json`, or CheckpointError."""
    path = step / PROGRESS
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        progress_of(said)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} does not say how far the run was: {error!r}") from error
    return dict(said)


def progress_of(said: dict[str, Any]) -> Progress:
    """The counts of a run."""
    return Progress(
        step=said["step"],
        epoch=said["epoch"],
        examples=said["examples"],
        tokens=said["tokens"],
        supervised_tokens=said["supervised_tokens"],
        skipped=said["skipped"],
        sources={name: Drawn(**drawn) for name, drawn in said["sources"].items()},
    )


def _tried(read: Callable[[], None]) -> str:
    try:
        read()
    except (OSError, CheckpointError) as error:
        return str(error)
    return ""
