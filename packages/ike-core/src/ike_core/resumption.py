"""What goes into a step that a run can go on from, and how it is taken up again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ike_core.errors import CheckpointError
from ike_core.identity import tell_saved
from ike_core.interfaces import Engine, SavedState, Stateful
from ike_core.json_lines import LOG_FILE
from ike_core.progress import Progress
from ike_core.run_setup import RunSetup

if TYPE_CHECKING:
    from ike_core.assembly import TrainingParts

SUPERSEDED = "log.superseded.jsonl"
"""Lines of steps that were made again from an earlier one."""


def stateful_parts(objective: Any, hooks: Mapping[str, Any]) -> dict[str, Stateful]:
    """What outlives a step, by its table."""
    named = {"objective": objective} | {f"hooks.{name}": hook for name, hook in hooks.items()}
    return {name: part for name, part in named.items() if isinstance(part, Stateful)}


def _saved_state(engine: Engine, parts: Mapping[str, Stateful]) -> SavedState:
    """What a checkpoint part keeps of this moment."""
    return SavedState(
        fragments=engine.fragments,
        counters=engine.counters,
        parts={name: part.state() for name, part in parts.items()},
    )


def save_step(parts: "TrainingParts", progress: Progress, *, final: bool) -> Path | None:
    """Collective: the step's folder; None without a checkpoint part."""
    setup = parts.setup
    if setup.store is None:
        return None
    folder = setup.store.save(
        setup.folder,
        model=parts.saved_model if setup.store.exports(final=final) else None,
        state=_saved_state(parts.engine, parts.stateful),
        progress=progress,
        final=final,
        facts={"fingerprint": parts.config.fingerprint(), "versions": setup.versions},
    )
    tell_saved(folder, setup.world)
    setup.trackers.say(f"saved {folder}")
    return folder


def take_up(setup: RunSetup, engine: Engine, parts: Mapping[str, Stateful]) -> Progress:
    """Collective: weights, moments and parts become those of the step; how far it was. From nothing: the start."""
    progress = _restored(setup, engine, parts)
    if setup.world.is_first:
        supersede(setup.folder, progress.step if progress.step else -1)  # what a start from zero says of step 0, too
    setup.world.synchronize()
    return progress


def _restored(setup: RunSetup, engine: Engine, parts: Mapping[str, Stateful]) -> Progress:
    store, step = setup.store, setup.opened.step
    if store is None or step is None:
        return Progress()
    loaded = store.load(step)
    if missing := sorted(parts.keys() ^ loaded.parts.keys()):
        raise CheckpointError(
            f"{step} keeps the state of {_list(loaded.parts)}, and this run has {_list(parts)}: {missing[0]} differs"
        )
    engine.restore(loaded.fragments)
    for name, part in parts.items():
        part.restore(loaded.parts[name])
    return loaded.progress


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "no part"


def supersede(run: Path, step: int) -> None:
    """Lines of log.jsonl after `step` move to log.superseded.jsonl: those steps are made again."""
    log = run / LOG_FILE
    if not log.exists():
        return
    kept: list[str] = []
    moved: list[str] = []
    for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
        (kept if _step_of(line) <= step else moved).append(line)
    if not moved:
        return
    with (run / SUPERSEDED).open("a", encoding="utf-8", newline="\n") as file:
        file.writelines(line if line.endswith("\n") else f"{line}\n" for line in moved)
    beside = log.with_name(f"{LOG_FILE}.partial")
    beside.write_text("".join(kept), encoding="utf-8", newline="\n")
    beside.replace(log)


def _step_of(line: str) -> float:
    """Of a line of the log; one that a kill cut off belongs to no step, and goes."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
