"""What a table of `[data]` reads: names of files, or a part that gives rows."""

from collections.abc import Sequence
from typing import Any

from ike_core.config.sections import DataSection, EvaluateSection, SourceSection, TrainSection
from ike_core.errors import ConfigError
from ike_core.interfaces import Source, Tokenizer

RowsSection = DataSection | EvaluateSection | SourceSection | TrainSection
"""Tables that say what rows are."""


def rows_of(name: str, section: RowsSection, tokenizer: Tokenizer | None) -> Sequence[str] | Source:
    """As ike-data's readers take it. ConfigError where the table says neither."""
    component = None if isinstance(section, EvaluateSection) else section.source
    if component is not None:
        source: Source | Any = component.build(tokenizer=tokenizer)
        return source
    if not section.files:
        raise ConfigError(f"data.{name} says no rows: name its files, or a source, or give one in Python")
    return section.files
