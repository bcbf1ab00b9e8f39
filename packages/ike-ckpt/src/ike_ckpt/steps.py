"""The step folders of a run: their names, writing one by all ranks, which of them are kept."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from safetensors import SafetensorError
from torch import Tensor

from ike_ckpt.disk import partial_of, put_in_place, recover, remove_whole, write_json
from ike_ckpt.manifest import FileRecord, Manifest
from ike_ckpt.model_folder import write_model
from ike_ckpt.parts import write_parts
from ike_ckpt.rank_state import FOLDER, read_rank, tensors_of, write_rank
from ike_ckpt.ranks import Speaks, agree, agree_all
from ike_core.errors import CheckpointError
from ike_core.interfaces import SavedModel, SavedState

_NAME = re.compile(r"step-(\d{6,})")


def step_folder(run: Path, step: int) -> Path:
    """`run/step-000500`; longer numbers stay whole."""
    return run / f"step-{step:06}"


def complete_steps(run: Path) -> dict[int, Path]:
    """The steps that a run has on disk, in their order. A folder that is not complete has another name."""
    found = {int(match[1]): path for path in run.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()}
    return dict(sorted(found.items()))


@attrs.frozen(kw_only=True)
class StepContents:
    """What a step folder gets."""

    model: SavedModel | None = None
    """`model/`"""
    state: SavedState | None = None
    """`state/`: this rank's."""
    progress: Mapping[str, Any] | None = None
    """`progress.json`"""


def write_step(ranks: Speaks, target: Path, contents: StepContents, *, keep_last: int | None) -> None:
    """Collective: the folder `target`, whole or absent, of what all ranks hold; all return when it is on disk, or all
    raise CheckpointError.

    Then all but the `keep_last` freshest steps go (None: none goes).
    """
    agree(ranks, _tried(target, partial(_begin, target, contents)) if ranks.is_first else "")
    try:
        if contents.state is not None:
            write = partial(write_rank, partial_of(target) / FOLDER, ranks.rank, contents.state)
            agree_all(ranks, _tried(target, write))
        agree(ranks, _finish(ranks, target, contents, keep_last))
    except CheckpointError:  # raised by all alike: none looks at the folder before it is cleared
        _clear(ranks, target)
        agree(ranks, "")
        raise
    except BaseException:
        _clear(ranks, target)
        raise


def _clear(ranks: Speaks, target: Path) -> None:
    if ranks.is_first:
        shutil.rmtree(partial_of(target), ignore_errors=True)


def _finish(ranks: Speaks, target: Path, contents: StepContents, keep_last: int | None) -> str:
    """Ranks whose part is only to be asked for their pieces of the model go through all weights, also when rank 0 can't
    write: under ZeRO-3 a turn is collective."""
    tensors = contents.model.weights() if contents.model else iter(())
    problem = ""
    if ranks.is_first:
        problem = _tried(target, partial(_complete, target, contents, tensors)) or _retire(target, keep_last)
    for _ in tensors:
        pass
    return problem


def _begin(target: Path, contents: StepContents) -> None:
    recover(target.parent, "step-*")
    (partial_of(target) / FOLDER if contents.state else partial_of(target)).mkdir(parents=True)


def _complete(target: Path, contents: StepContents, tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Rank 0's part, when every rank's files are on disk; the manifest last."""
    folder = partial_of(target)
    if contents.model:
        write_model(folder / "model", contents.model, tensors)
    if contents.state:
        write_parts(folder / FOLDER, contents.state.parts)
    if contents.progress is not None:
        write_json(folder / "progress.json", contents.progress)
    Manifest.of(folder, _hashed(folder)).write(folder)
    put_in_place(target)


def _hashed(folder: Path) -> dict[str, FileRecord]:
    """Files of tensors whose hash was taken as they were written."""
    lists = [read_rank(path) for path in (folder / FOLDER).glob("rank-*.json")]
    return {f"{FOLDER}/{tensors_of(one.rank)}": FileRecord(one.bytes, one.hash) for one in lists}


def _tried(target: Path, write: Callable[[], None]) -> str:
    """Returns what went wrong, if anything; what can't be foreseen ends the process, and the launcher the others."""
    try:
        write()
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
