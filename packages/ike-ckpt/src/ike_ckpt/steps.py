"""The step folders of a run: their names, writing one by all ranks, which of them are kept."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from ike_ckpt.disk import recover, remove_whole, whole_folder, write_json
from ike_ckpt.model_folder import write_model
from ike_ckpt.ranks import Speaks, agree
from ike_core.errors import CheckpointError
from ike_core.interfaces import SavedModel

_NAME = re.compile(r"step-(\d{6,})")


def step_folder(run: Path, step: int) -> Path:
    """`run/step-000500`; longer numbers stay whole."""
    return run / f"step-{step:06}"


def complete_steps(run: Path) -> dict[int, Path]:
    """The steps that a run has on disk, in their order. A folder that is not complete has another name."""
    found = {int(match[1]): path for path in run.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()}
    return dict(sorted(found.items()))


def write_step(
    ranks: Speaks, target: Path, model: SavedModel | None, progress: Mapping[str, Any] | None, *, keep_last: int | None
) -> None:
    """Collective: rank 0 writes the folder `target`, whole or absent; all return when it is on disk, or all raise.

    Then all but the `keep_last` freshest steps go (None: none goes). Ranks whose part is only to be asked for their
    pieces go through all weights, also when rank 0 can't write: under ZeRO-3 a turn is collective.
    """
    tensors = model.weights() if model else iter(())
    problem = ""
    if ranks.is_first:
        problem = _write(target, model, tensors, progress) or _retire(target, keep_last)
    for _ in tensors:
        pass
    agree(ranks, problem)


def _write(
    target: Path,
    model: SavedModel | None,
    tensors: Iterator[tuple[str, Tensor]],
    progress: Mapping[str, Any] | None,
) -> str:
    """Returns what went wrong, if anything; what can't be foreseen ends the process, and the launcher the others."""
    try:
        recover(target.parent, "step-*")
        with whole_folder(target) as partial:
            if model:
                write_model(partial / "model", model, tensors)
            if progress is not None:
                write_json(partial / "progress.json", progress)
    except (OSError, ValueError, SafetensorError, CheckpointError) as error:
        return f"{target} was not saved; what was complete before still is: {error}"
    return ""


def _retire(fresh: Path, keep: int | None) -> str:
    """Removes what is no longer kept, the least fresh first, and returns what went wrong.

    The step just written always stays. A step beyond it is of an earlier life of this run, abandoned when the run went
    on from before: older than all.
    """
    if keep is None:
        return ""
    steps = complete_steps(fresh.parent)
    newest = next(step for step, path in steps.items() if path == fresh)
    by_age = sorted(steps, key=lambda step: (step <= newest, step))
    try:
        for step in by_age[:-keep]:
            remove_whole(steps[step])
    except OSError as error:
        return f"{fresh} is saved, but a step that is no longer kept could not be removed: {error}"
    return ""
