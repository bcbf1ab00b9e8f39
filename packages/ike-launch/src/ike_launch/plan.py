"""What a run would be, told before anything is started; torch is not needed for it."""

from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Literal, Self

import attrs

from ike_core.config import Config
from ike_core.errors import ConfigError, DataError
from ike_launch.devices import Gpus

Purpose = Literal["train", "infer"]


@attrs.frozen
class FileSet:
    """The files of one table, found."""

    key: str
    """'data.train.files'"""
    files: Sequence[str]

    def __str__(self) -> str:
        return self.files[0] if len(self.files) == 1 else f"{len(self.files)} files, first {self.files[0]}"


@attrs.frozen(kw_only=True)
class Plan:
    """A run, resolved as far as can be without its parts."""

    config: Config
    purpose: Purpose
    gpus: Gpus
    ranks: int
    file_sets: Sequence[FileSet]

    @classmethod
    def of(cls, config: Config, purpose: Purpose, gpus: Gpus) -> Self:
        """ConfigError for a step that can't be dealt to the ranks, DataError for files that are not there."""
        ranks = gpus.ranks(config.launch.ranks)
        if purpose == "train":
            _check_batch(config, ranks)
        file_sets = [_find(key, patterns, config) for key, patterns in _patterns(config, purpose)]
        return cls(config=config, purpose=purpose, gpus=gpus, ranks=ranks, file_sets=file_sets)

    def text(self) -> str:
        """For people: a line a fact."""
        facts = [("run", f"{self.config.run.name}, in {self.config.run.root.absolute()}"), ("ranks", self._ranks())]
        facts += self._training() if self.purpose == "train" else self._inference()
        facts += [(each.key, str(each)) for each in self.file_sets]
        facts += [("meet at", f"port {self.config.launch.port}" if self.config.launch.port else "a free port")]
        width = max(len(name) for name, _ in facts) + 2
        return "\n".join([f"{self.purpose} would run:", *(f"  {name:{width}}{value}" for name, value in facts)])

    def _ranks(self) -> str:
        where = f"{self.gpus.count} GPUs by {self.gpus.source}" if self.gpus.count else "no GPU seen: on the CPU"
        return f"{self.ranks} on this machine ({where})"

    def _training(self) -> list[tuple[str, str]]:
        batch = self.config.batch
        limit = f" and {batch.examples_per_device} examples" if batch.examples_per_device else ""
        length = self.config.length
        model = self.config.model
        return [
            ("model", str(model.part.table.get("path", model.part.uses)) if model else "given by the script"),
            ("objective", self.config.objective.uses if self.config.objective else "given by the script"),
            ("engine", f"{self.config.engine.part.uses}, {self.config.engine.precision}"),
            ("batch.examples_per_step", f"{batch.examples_per_step} over all ranks: {self._dealt()}"),
            ("micro-batch", f"at most {batch.tokens_per_device} tokens{limit} on one rank, as many as a step needs"),
            ("length", f"{length.steps} steps" if length.steps else f"{length.epochs:g} epochs"),
        ]

    def _dealt(self) -> str:
        share = self.config.batch.examples_per_step / self.ranks
        return (
            f"{share:g} a rank" if share == int(share) else f"{share:.3g} a rank on average, none repeated or dropped"
        )

    def _inference(self) -> list[tuple[str, str]]:
        inference, model = self.config.inference, self.config.model
        assert inference is not None
        return [
            ("model", str(model.part.table.get("path", model.part.uses)) if model else "given by the script"),
            ("inference", inference.part.uses),
            ("inference.output", str(inference.output)),
        ]


def _check_batch(config: Config, ranks: int) -> None:
    examples = config.batch.examples_per_step
    if examples < ranks:
        origin = config.origin("batch.examples_per_step")
        raise ConfigError(
            f"batch.examples_per_step = {examples} can't be dealt to {ranks} ranks, which need one each; raise it to "
            f"{ranks} or more, or set launch.ranks <= {examples} ({origin})"
        )


def _patterns(config: Config, purpose: Purpose) -> Iterator[tuple[str, Sequence[str]]]:
    if purpose == "infer":
        if config.inference is None:
            raise ConfigError("there is no [inference] table: infer needs inference.files and inference.output")
        yield "inference.files", config.inference.files
        return
    if config.data.train is not None and config.data.train.files:
        yield "data.train.files", config.data.train.files
    for name, source in config.data.train.sources.items() if config.data.train is not None else ():
        if source.files:
            yield f"data.train.sources.{name}.files", source.files
    for name, section in config.data.valid.items():
        if section.files:
            yield f"data.valid.{name}.files", section.files
    for name, evaluation in config.evaluate.items():
        yield f"evaluate.{name}.files", evaluation.files


def _find(key: str, patterns: Sequence[str], config: Config) -> FileSet:
    found: list[str] = []
    for pattern in patterns:
        matching = sorted(glob(pattern, recursive=True))
        if not matching:
            folder = Path(pattern).parent
            beside = sorted(path.name for path in folder.glob("*") if path.suffix == Path(pattern).suffix)[:5]
            hint = f"; in that folder are {', '.join(beside)}" if beside else ""
            raise DataError(f"{key}: there is no file {pattern} ({config.origin(key)}){hint}")
        found += matching
    return FileSet(key, found)
