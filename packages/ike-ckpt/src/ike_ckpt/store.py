"""`[checkpoint]`: names the run, and keeps its last steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from ike_ckpt.fileid import create_for
from ike_ckpt.ranks import ScriptRanks
from ike_ckpt.steps import step_folder, write_step
from ike_core.errors import CheckpointError
from ike_core.interfaces import SavedModel, World
from ike_core.progress import Progress


@attrs.frozen
class SafetensorsStore:
    """Steps as folders of safetensors and JSON: `step-000500/model/` and `progress.json`."""

    keep_last: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    """Steps kept, the newest; at least 1."""
    export: Literal["last_and_best", "every", "never"] = attrs.field(
        default="last_and_best", validator=attrs.validators.in_(("last_and_best", "every", "never"))
    )
    """Which saves get a `model/`: a save is the last when it is made, so both of the first two say each;
    never: the end of the run alone."""

    def create_fileid(self, name: str, root: Path, world: World) -> str:
        """Collective: the run's id, and its folder `root/<id>` with owner.json."""
        return create_for(world, name, root)

    def exports(self, *, final: bool) -> bool:
        """Whether a save gets a `model/` folder."""
        return final or self.export != "never"

    def save(
        self, folder: Path, *, model: SavedModel | None, progress: Progress, final: bool, facts: Mapping[str, Any]
    ) -> Path:
        """Collective: writes `folder/step-000500`, whole or absent, removes what is no longer kept, returns the step.

        A step of that number that is there already is replaced. Raises CheckpointError on every rank.
        """
        record = attrs.asdict(progress) | {"final": final}
        twice = sorted(record.keys() & facts.keys())
        if twice:
            raise CheckpointError(f"facts for progress.json can't be called {', '.join(twice)}: the run's own are")
        target = step_folder(folder, progress.step)
        write_step(ScriptRanks(), target, model, record | dict(facts), keep_last=self.keep_last)
        return target
