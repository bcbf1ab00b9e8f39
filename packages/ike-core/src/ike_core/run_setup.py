"""What every run begins with: the ranks, the run's id and folder, and who speaks."""

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from ike_core.batch import Vocabulary
from ike_core.config import Config
from ike_core.config.component import Component
from ike_core.door import runtime
from ike_core.errors import ConfigError
from ike_core.identity import own_run, tell_launcher
from ike_core.interfaces import CheckpointStore, EnginePart, OpenedRun, RunFacts, Tokenizer, World
from ike_core.settings_file import write_settings
from ike_core.trackers import Trackers

PACKAGES = ("ike-core", "torch", "deepspeed", "transformers")


@attrs.frozen(kw_only=True)
class RunSetup:
    """A run that has a name, and nothing to learn yet."""

    config: Config
    engine_part: EnginePart
    world: World
    opened: OpenedRun
    folder: Path
    store: CheckpointStore | None
    """None: nothing is saved."""
    trackers: Trackers
    tokenizer: Tokenizer | None

    @property
    def file_id(self) -> str:
        """The run's."""
        return self.opened.file_id

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tokenizer's."""
        return None if self.tokenizer is None else self.tokenizer.vocabulary

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages whose code makes an update what it is."""
        found = {}
        for name in PACKAGES:
            with suppress(metadata.PackageNotFoundError):  # not installed, or run from its source
                found[name] = metadata.version(name)
        return found

    def start_trackers(self, steps: int) -> None:
        run = self.config.run
        self.trackers.start(
            RunFacts(
                file_id=self.file_id,
                folder=self.folder,
                name=run.name,
                group=run.group,
                steps=steps,
                ranks=self.world.size,
                config=self.config.tree,
            )
        )


def set_up(config: Config, *, model: Any, trains: bool, given: Sequence[str] = ()) -> RunSetup:
    """Collective: the ranks meet, agree on their settings, and share an id and a folder.

    `given`: names of what replaces settings, and so tells one experiment from another as they do.
    """
    engine_part: EnginePart = config.engine.part.build()
    engine_part.check(precision=config.engine.precision)
    world = engine_part.start()
    _agree(config, world)
    if trains:
        _check_step(config, world)
    store: CheckpointStore | None = None
    if config.checkpoint is not None and _is_there(config.checkpoint):
        store = config.checkpoint.build()
    identity = "-".join([config.identity_fingerprint(), *filter(None, given)]) if trains else ""
    opened = (own_run if store is None else store.open_run)(config.run.name, config.run.root, world, identity=identity)
    folder = config.run.root / opened.file_id
    tell_launcher(folder, world)
    if world.is_first:
        write_settings(folder, config, after=opened.step.name if opened.step else "")
    trackers = Trackers({name: partial(tracker.build) for name, tracker in config.trackers.items()}, world)
    if store is None and config.checkpoint is not None:
        trackers.say(
            "nothing will be saved: [checkpoint] needs ike-ckpt, which is not installed (pip install ike-ckpt)"
        )
    if opened.note:
        trackers.say(opened.note)
    return RunSetup(
        config=config,
        engine_part=engine_part,
        world=world,
        opened=opened,
        folder=folder,
        store=store,
        trackers=trackers,
        tokenizer=build_tokenizer(config, model),
    )


def build_tokenizer(config: Config, model: Any) -> Tokenizer | None:
    """`[tokenizer]`; its path is by default the model's. None where nothing says which, or the model comes without."""
    component = config.tokenizer
    if component is None or not _is_there(component):
        return None
    tokenizer: Tokenizer
    if "path" in component.table:
        tokenizer = component.build()
        return tokenizer
    path = config.model.part.table.get("path") if config.model is not None else None
    if path is None and model is not None:
        path = runtime("modules:folder_of")(model)
    if path is None or (Path(path).is_dir() and not any(Path(path).glob("tokenizer*"))):
        return None
    tokenizer = component.build(path=path)
    try:
        tokenizer.vocabulary  # noqa: B018  loads it, so that a model that is not there is said to be that
    except ConfigError as error:
        raise ConfigError(f"model.path = {path!r}, which is tokenizer.path by default: {error}") from error
    return tokenizer


def _agree(config: Config, world: World) -> None:
    prints = world.gather(config.fingerprint())
    if len(set(prints)) > 1:
        odd = next(rank for rank, fingerprint in enumerate(prints) if fingerprint != prints[0])
        raise ConfigError(
            f"rank {odd} read other settings than rank 0 (fingerprints {prints[odd][:12]} and {prints[0][:12]}); "
            "do all hosts see the same files?"
        )


def _check_step(config: Config, world: World) -> None:
    """Every rank needs an example of each step; an inference has no steps."""
    if config.batch.examples_per_step < world.replicas:
        raise ConfigError(
            f"batch.examples_per_step = {config.batch.examples_per_step} can't be dealt to {world.replicas} ranks; "
            f"raise it to at least {world.replicas}, or use fewer ranks"
        )


def _is_there(component: Component) -> bool:
    """A default part of a package that is not installed is left out; one that the user names is an error when built."""
    package = component.uses.split(":")[0].split(".")[0]
    return not component.is_default or _is_installed(package)


def _is_installed(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None
