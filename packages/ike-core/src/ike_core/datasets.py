"""The tables of `[data]` as datasets, read by ike-data."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import attrs

from ike_core.config import Config
from ike_core.config.component import Component
from ike_core.config.keys import hint
from ike_core.config.sections import EvaluateSection, HoldoutSection, TrainSection
from ike_core.door import locate
from ike_core.errors import ConfigError
from ike_core.interfaces import Dataset, DatasetReader, Holdout, Tokenizer, World
from ike_core.known_tokens import check_tokens
from ike_core.mixed_dataset import MixedDataset
from ike_core.section_rows import RowsSection, rows_of
from ike_core.token_limit import token_limit

READER = "ike_data:read_dataset"


@attrs.frozen
class Datasets:
    """What a run learns from and is evaluated on."""

    train: Dataset
    valid: Mapping[str, Dataset]
    """By name; 'holdout' are the rows kept from training."""
    evaluate: Mapping[str, Dataset]
    """Of those `[evaluate.<name>]` tables whose part is an objective."""

    @property
    def by_name(self) -> Mapping[str, Dataset]:
        """All, each by the name of its table."""
        valid = {f"valid.{name}": dataset for name, dataset in self.valid.items()}
        return {"train": self.train, **valid, **{f"evaluate.{name}": data for name, data in self.evaluate.items()}}


@attrs.frozen(kw_only=True)
class DatasetBuilder:
    """Reads the tables of one run."""

    config: Config
    tokenizer: Tokenizer | None
    given: Any
    """`data_processor_classes` of the pipeline."""
    sources: Mapping[str, Any]
    """`sources` of the pipeline."""
    positions: int
    """Tokens that the model has positions for; 0: unknown."""
    embeddings: int
    """Tokens that the model knows; 0: unknown."""
    folder: Path
    world: World
    say: Any
    """One line for the console."""

    def build(self, objectives: Mapping[str, EvaluateSection]) -> Datasets:
        """Collective. `objectives`: the `[evaluate]` tables that need a dataset."""
        data = self.config.data
        section = data.train
        if section is None and "train" in self.sources:
            section = TrainSection()
        if section is None:
            raise ConfigError("[data.train] is missing: say its files, or its sources, and its processor")
        self._check_names({"train", *data.valid, *objectives})
        self._check_sources({"train", *data.valid})
        train, kept_out = self._train(section, _holdout(data.holdout, self.config.run.seed))
        valid = {
            name: self._read(f"valid.{name}", table, self._processor(name, table.processor))[0]
            for name, table in data.valid.items()
        }
        if kept_out is not None:
            valid["holdout"] = kept_out
        evaluate = {
            name: self._read(f"evaluate.{name}", table, self._processor(name, table.processor or section.processor))[0]
            for name, table in objectives.items()
        }
        return Datasets(train, valid, evaluate)

    def _train(self, section: TrainSection, holdout: Holdout | None) -> tuple[Dataset, Dataset | None]:
        """What is learned from, and what of it is held out: of every source as `[data.holdout]` says."""
        if not section.sources:
            return self._read("train", section, self._processor("train", section.processor), holdout)
        kept, held_out = dict[str, Dataset](), dict[str, Dataset]()
        for name, source in section.sources.items():
            processor = self._processor("train", source.processor)
            kept[name], apart = self._read(f"train.{name}", source, processor, holdout)
            if apart is not None:
                held_out[name] = apart
        return MixedDataset(kept), MixedDataset(held_out) if held_out else None

    def _read(
        self, name: str, section: RowsSection, processor: Any, holdout: Holdout | None = None
    ) -> tuple[Dataset, Dataset | None]:
        read: DatasetReader = locate(READER)
        given = self.sources.get(name.removeprefix("valid."))
        parts = read(
            name,
            rows_of(name, section, self.tokenizer) if given is None else given,
            processor,
            limit=section.limit,
            max_tokens=token_limit(self.config, section.max_tokens, positions=self.positions),
            too_long=section.too_long,
            budget=self.config.data.ledger.budget,
            holdout=holdout,
            folder=self.folder,
            world=self.world,
            cache=self.config.data.cache,
            workers=0 if self.config.data.workers == "auto" else self.config.data.workers,
            say=self.say,
        )
        self.say(parts.summary)
        check_tokens(name, parts, self.embeddings)
        return parts.kept, parts.held_out

    def _check_names(self, known: Set[str]) -> None:
        """A processor for no dataset would be a dead option."""
        for name in _given(self.given).keys() - known:
            sets = ", ".join(sorted(known))
            raise ConfigError(
                f"data_processor_classes has a processor for {name!r}, and the data sets are {sets}{hint(name, known)}"
            )

    def _check_sources(self, known: Set[str]) -> None:
        for name in self.sources.keys() - known:
            sets = ", ".join(sorted(known))
            raise ConfigError(f"sources has rows for {name!r}, and the data sets are {sets}{hint(name, known)}")
        train = self.config.data.train
        if "train" in self.sources and train is not None and train.sources:
            raise ConfigError("sources has rows for 'train', and so have [data.train.sources]; say one of them")

    def _processor(self, name: str, component: Component | None) -> Any:
        """What the pipeline was given for this dataset (as for data.train where it says nothing), else its table's."""
        given = _given(self.given)
        processor = given.get(name, given.get("train"))
        if processor is None:
            if component is None:
                raise ConfigError(f"data.{name} has no processor: say data.train.processor.uses, or give one in Python")
            return component.build(tokenizer=self.tokenizer)
        if not isinstance(processor, type):
            return processor
        if component is None:
            component = Component(f"data.{name}.processor", f"{processor.__module__}:{processor.__qualname__}")
        return component.build(tokenizer=self.tokenizer, found=processor)


def _given(processors: Any) -> Mapping[str, Any]:
    """By dataset name; a sequence is for data.train, and so for all that inherit from it."""
    if processors is None:
        return {}
    if isinstance(processors, Mapping):
        return processors
    if isinstance(processors, Sequence) and len(processors) == 1:
        return {"train": processors[0]}
    raise ConfigError(
        "data_processor_classes is a mapping dataset name -> class or instance, or a sequence of one for data.train; "
        f"got {processors!r}"
    )


def _holdout(section: HoldoutSection | None, seed: int) -> Holdout | None:
    return None if section is None else Holdout(section.count, section.share, seed)
