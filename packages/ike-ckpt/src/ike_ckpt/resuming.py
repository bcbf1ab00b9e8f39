"""Which run a start goes on with: rank 0 looks, decides, and every rank hears of it before anything else is built."""

from collections.abc import Iterator
from pathlib import Path

import attrs

from ike_ckpt.fileid import new_folder
from ike_ckpt.loading import read_progress
from ike_ckpt.manifest import NAME as MANIFEST
from ike_ckpt.owner import Owner, claim, read_owner
from ike_ckpt.rank_state import FOLDER
from ike_ckpt.steps import complete_steps
from ike_core.errors import CheckpointError

CHOICES = ("auto", "never", "must")


@attrs.frozen(kw_only=True)
class Choice:
    """What rank 0 found."""

    owner: Owner
    step: Path | None
    """To go on from; None: from the start."""
    note: str
    """What was decided and why; '' for a new run where there was nothing to look at."""

    @property
    def file_id(self) -> str:
        return self.owner.folder.name


@attrs.frozen
class Asked:
    """A start: what it is called, and what it learns."""

    name: str
    root: Path
    identity: str
    """Fingerprint of all that changes an update; '' where nothing is learned."""

    @property
    def record(self) -> dict[str, str]:
        """What owner.json says beside the process."""
        return {"name": self.name, "identity": self.identity}


def choose(asked: Asked, resume: str) -> Choice:
    """`resume`: auto, never, must, or a run or step folder. CheckpointError where what is asked for can't be had."""
    if resume not in CHOICES:
        return _given(asked, Path(resume))
    notes = []
    if resume != "never" and asked.identity:
        for folder in _runs(asked):
            found = _joined(asked, folder)
            if isinstance(found, Choice):
                return found
            notes.append(found)
    if resume == "must":
        raise CheckpointError(
            f"checkpoint.resume = must, and there is no run of the name {asked.name!r} and these settings to go on "
            f"with in {asked.root}{': ' if notes else ''}{'; '.join(notes)}"
        )
    return Choice(owner=_new(asked), step=None, note=f"a new run: {'; '.join(notes)}" if notes else "")


def _runs(asked: Asked) -> Iterator[Path]:
    """Of this name and these settings, the newest first."""
    found = []
    for folder in asked.root.glob(f"{asked.name}-*") if asked.root.is_dir() else ():
        record = read_owner(folder)
        if record and record.get("name") == asked.name and record.get("identity") == asked.identity:
            found.append(folder)
    yield from sorted(found, key=lambda folder: folder.name, reverse=True)  # the name has the time of the first start


def _joined(asked: Asked, folder: Path) -> Choice | str:
    """The run, owned; or why it is not gone on with."""
    step = newest_state(folder)
    if step is not None and read_progress(step)["final"]:
        return f"{folder.name} is finished"
    owner = claim(folder, asked.record)
    if owner is None:
        return f"{folder.name} is alive ({_who(folder)})"
    return Choice(owner=owner, step=step, note=_goes_on(folder, step))


def _goes_on(folder: Path, step: Path | None) -> str:
    where = "from the start: it had saved nothing yet" if step is None else f"after {step.name}"
    return f"going on with {folder.name} {where} (checkpoint.resume = never would start a new run)"


def newest_state(run: Path) -> Path | None:
    """The newest complete step that a run can go on from, found by looking."""
    steps = [step for step in complete_steps(run).values() if (step / MANIFEST).exists() and (step / FOLDER).is_dir()]
    return steps[-1] if steps else None


def _given(asked: Asked, said: Path) -> Choice:
    path = said if said.exists() else asked.root / said
    if not path.is_dir():
        raise CheckpointError(
            f"checkpoint.resume = {str(said)!r} is no folder; say auto, never, must, a run's folder, or a step's"
        )
    is_step = (path / MANIFEST).exists() or path.name.startswith("step-")
    run, step = (path.parent, path) if is_step else (path, newest_state(path))
    record = read_owner(run)
    if record is None:
        raise CheckpointError(f"checkpoint.resume: {run} is no run of ike's; it has no owner.json that can be read")
    if record.get("identity") != asked.identity:
        raise CheckpointError(
            f"checkpoint.resume: {run} was started with other settings that change what is learned; `ike-launch config "
            f"{run / 'config.toml'}` shows them. Give those, or start anew with the weights of a step as model.path"
        )
    if step is not None and not (step / FOLDER).is_dir():
        raise CheckpointError(f"checkpoint.resume: {step} has no {FOLDER}/, so nothing can be gone on from there")
    owner = claim(run, asked.record | {"name": record.get("name", asked.name)})
    if owner is None:
        raise CheckpointError(f"checkpoint.resume: {run} is alive ({_who(run)}); stop it first")
    return Choice(owner=owner, step=step, note=_goes_on(run, step))


def _who(folder: Path) -> str:
    record = read_owner(folder) or {}
    return f"process {record.get('pid', '?')} on {record.get('host', '?')}"


def _new(asked: Asked) -> Owner:
    folder = new_folder(asked.name, asked.root)
    owner = claim(folder, asked.record)
    assert owner is not None  # nobody else knows of it
    return owner
