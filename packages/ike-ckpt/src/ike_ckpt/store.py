"""`[checkpoint]`: names the run, keeps its last steps, and finds the one to go on from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from ike_ckpt.fileid import check_name
from ike_ckpt.loading import load_step
from ike_ckpt.ranks import ScriptRanks, agree
from ike_ckpt.resuming import Asked, Choice, choose
from ike_ckpt.steps import StepContents, step_folder, write_step
from ike_core.errors import CheckpointError
from ike_core.interfaces import LoadedStep, OpenedRun, SavedModel, SavedState, World
from ike_core.progress import Progress


@attrs.frozen
class SafetensorsStore:
    """Steps as folders of safetensors and JSON: `step-000500/model/`, `state/`, `progress.json` and `manifest.json`."""

    keep_last: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    """Steps kept, the newest; at least 1."""
    export: Literal["last_and_best", "every", "never"] = attrs.field(
        default="last_and_best", validator=attrs.validators.in_(("last_and_best", "every", "never"))
    )
    """Which saves get a `model/`: a save is the last when it is made, so both of the first two say each;
    never: the end of the run alone."""
    resume: str = "auto"
    """auto: the newest unfinished run of this name with the same identity keys, whose owner is dead, is gone on with,
    else a new one begins; never: a new one; must: an error where there is none; or the folder of a run, or a step."""

    def open_run(self, name: str, root: Path, world: World, *, identity: str) -> OpenedRun:
        """Collective: the run's id, and its folder `root/<id>`, which rank 0's process owns from here on."""
        chosen: list[Choice] = []
        problem = ""
        if world.is_first:
            try:
                check_name(name, "a run's name")
                chosen.append(choose(Asked(name, root, identity), self.resume))
            except (OSError, ValueError, CheckpointError) as error:
                problem = f"run {name!r} could not be opened in {root.absolute()}: {error}"
        agree(world, problem)
        told = [(one.file_id, str(one.step or ""), one.note) for one in chosen]
        file_id, step, note = world.broadcast(told[0] if told else None)
        return OpenedRun(
            file_id=file_id,
            step=Path(step) if step else None,
            note=note,
            release=chosen[0].owner.release if chosen else _nothing,
        )

    def exports(self, *, final: bool) -> bool:
        """Whether a save gets a `model/` folder."""
        return final or self.export != "never"

    def save(
        self,
        folder: Path,
        *,
        model: SavedModel | None,
        state: SavedState | None,
        progress: Progress,
        final: bool,
        facts: Mapping[str, Any],
    ) -> Path:
        """Collective: writes `folder/step-000500`, whole or absent, removes what is no longer kept, returns the step.

        A step of that number that is there already is replaced. Raises CheckpointError on every rank.
        """
        record = attrs.asdict(progress) | {"final": final}
        twice = sorted(record.keys() & facts.keys())
        if twice:
            raise CheckpointError(f"facts for progress.json can't be called {', '.join(twice)}: the run's own are")
        target = step_folder(folder, progress.step)
        contents = StepContents(model=model, state=state, progress=record | dict(facts))
        write_step(ScriptRanks(), target, contents, keep_last=self.keep_last)
        return target

    def load(self, step: Path) -> LoadedStep:
        """Collective: what `save` wrote, by any number of ranks; verified first, CheckpointError names the file."""
        return load_step(ScriptRanks(), step)


def _nothing() -> None:
    """Ranks but the first own nothing."""
