"""What the types of the sections can't say: default parts, alternatives, and names that no part may use."""

from collections.abc import Mapping

from ike_core.config.sections import (
    DataSection,
    Every,
    HoldoutSection,
    LengthSection,
    ModelSection,
    SourceSection,
    TrainSection,
)

DEFAULT_USES: Mapping[str, str] = {
    "model": "ike_core.runtime:PretrainedModel",
    "tokenizer": "ike_data:HFTokenizer",
    "engine": "ike_core.runtime:DeepSpeed",
    "optimizer": "ike_core.runtime:AdamW",
    "schedule": "ike_core:Schedule",
    "checkpoint": "ike_ckpt:SafetensorsStore",
    "inference": "ike_tasks:Generate",
    "trackers.console": "ike_core:ConsoleTracker",
    "trackers.lines": "ike_core:JsonLinesTracker",
}
"""The part of a table that says no `uses`. Tokenizer, checkpoint and the two trackers are there unless removed
(`~checkpoint`); engine, optimizer and schedule always are."""

ALTERNATIVES: Mapping[type, tuple[str, ...]] = {
    ModelSection: ("freeze", "train"),
    DataSection: ("files", "source"),
    SourceSection: ("files", "source"),
    TrainSection: ("files", "source", "sources"),
    HoldoutSection: ("count", "share"),
    LengthSection: ("epochs", "steps"),
    Every: ("steps", "epochs"),
}
"""Keys of which a table has one: the later layer's takes out the others, two in one layer are an error."""

NEEDS_ONE: frozenset[type] = frozenset({HoldoutSection, LengthSection, Every, SourceSection})
"""Tables that say nothing without one of their alternatives."""

RESERVED: Mapping[str, frozenset[str]] = {
    "model": frozenset({"freeze", "train", "lora", "activation_checkpointing", "attention"}),
    "frozen": frozenset({"attention", "dtype", "precomputed"}),
    "evaluate": frozenset({"files", "limit", "cadence", "processor", "max_tokens", "too_long", "output"}),
    "inference": frozenset({"files", "limit", "cadence", "processor", "max_tokens", "too_long", "output"}),
    "optimizer": frozenset({"groups", "peak_lr"}),
    "engine": frozenset({"precision", "clip_norm", "on_nonfinite", "skip_budget"}),
}
"""Keys that core takes from a part's table, now or once their code is built: no part may have such a field."""
