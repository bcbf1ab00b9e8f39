"""Which rows a command line means, and what a run would make of them."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from ike_core.config import Config, load_config
from ike_core.config.component import Component
from ike_core.errors import ConfigError
from ike_core.interfaces import DataProcessor, Tokenizer
from ike_core.run_setup import build_tokenizer
from ike_core.section_rows import RowsSection, rows_of
from ike_core.token_limit import token_limit
from ike_data.building import Preparation, Request
from ike_data.kept import user_cache
from ike_data.model_positions import model_positions

TRAIN = "train"
_SETTING = re.compile(r"""[\w."'-]+=.*|~.*""", re.DOTALL)
_DEFAULT_PROCESSOR = "data.train.processor.uses=ike_data:ChatProcessor"


@attrs.frozen(kw_only=True)
class Selection:
    """One dataset of a run."""

    name: str
    """As the run calls it: 'train', 'train.math' (a source), 'valid.helpful' or 'evaluate.gsm8k'."""
    request: Request
    budget: float
    """Share of rows that may be unusable."""
    tokenizer: Tokenizer | None
    """The run's."""
    cache: Path
    """Folder of kept stores."""
    knows_limit: bool
    """Whether a run will have this `max_tokens`; else only the built model tells."""

    @property
    def max_tokens(self) -> int:
        """Of an example."""
        return self.request.preparation.max_tokens

    @property
    def too_long(self) -> str:
        """What becomes of an example with more."""
        return self.request.preparation.too_long


def select(words: Sequence[str], *, data: str) -> list[Selection]:
    """What the words of a command line mean: TOML layers, settings, and data files.

    Files stand in the place of those that the settings name for `data` ('': for data.train). ConfigError where the
    settings are wrong, or say no such dataset, no processor or no tokenizer.
    """
    settings = [word for word in words if _SETTING.fullmatch(word) and not Path(word).exists()]
    layers = [word for word in words if word not in settings and word.endswith(".toml")]
    files = [word for word in words if word not in settings and word not in layers]
    if files:
        settings.append(f"{_table(data or TRAIN)}.files={json.dumps(files, ensure_ascii=False)}")
    if not layers and not any(word.startswith("data.train.processor") for word in settings):
        settings.append(_DEFAULT_PROCESSOR)
    return selections(load_config(*layers, *settings), data)


def selections(config: Config, data: str) -> list[Selection]:
    """The dataset called so, 'train' with all its sources; '': all of [data]."""
    sections = _sections(config)
    names = [name for name in sections if _is_meant(name, data)]
    if not names:
        known = f"they have {', '.join(sections)}" if sections else "they have none"
        called = f" called {data}" if data else ""
        raise ConfigError(f"the settings have no data{called}: {known}; name files, or layers with [data.train]")
    tokenizer = build_tokenizer(config, None)
    positions = model_positions(config.model.part if config.model is not None else None)
    return [_selection(config, name, sections[name], tokenizer, positions) for name in names]


def _is_meant(name: str, data: str) -> bool:
    if not data:
        return not name.startswith("evaluate.")
    return name == data or (data == TRAIN and name.startswith(f"{TRAIN}."))


def _table(data: str) -> str:
    """Where the settings have it."""
    if data.startswith(f"{TRAIN}."):
        return f"data.train.sources.{data.removeprefix(f'{TRAIN}.')}"
    return data if data.startswith("evaluate.") else f"data.{data}"


def _selection(
    config: Config, name: str, section: RowsSection, tokenizer: Tokenizer | None, positions: int | None
) -> Selection:
    preparation = Preparation(
        processor=_processor(config, section, name, tokenizer),
        max_tokens=token_limit(config, section.max_tokens, positions=positions or 0),
        too_long=section.too_long,
    )
    workers = 0 if config.data.workers == "auto" else config.data.workers
    return Selection(
        name=name,
        request=Request(
            files=rows_of(name, section, tokenizer), limit=section.limit, preparation=preparation, workers=workers
        ),
        budget=config.data.ledger.budget,
        tokenizer=tokenizer,
        cache=config.data.cache or user_cache(),
        knows_limit=section.max_tokens > 0 or positions is not None,
    )


def _sections(config: Config) -> Mapping[str, RowsSection]:
    sections: dict[str, RowsSection] = {}
    train = config.data.train
    if train is not None and train.sources:
        sections.update({f"{TRAIN}.{name}": source for name, source in train.sources.items()})
    elif train is not None:
        sections[TRAIN] = train
    sections.update({f"valid.{name}": section for name, section in config.data.valid.items()})
    sections.update({f"evaluate.{name}": section for name, section in config.evaluate.items()})
    return sections


def _processor(config: Config, section: RowsSection, name: str, tokenizer: Tokenizer | None) -> DataProcessor:
    component: Component | None = section.processor
    if component is None and config.data.train is not None:
        component = config.data.train.processor
    if component is None:
        raise ConfigError(f"{name} data has no processor in the settings; say data.train.processor.uses")
    processor: DataProcessor = component.build(tokenizer=tokenizer)
    return processor
