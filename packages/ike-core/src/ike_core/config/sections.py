"""The tables of a run file whose keys are ike's own. A part's own keys are its class's fields.

Each field says in its metadata whether it is identity (changes an update) or mechanics (changes how, not what). Where a
table is mechanics all of it is; where it is identity its own fields may say otherwise.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from ike_core.config.component import Component


def identity(default: Any = attrs.NOTHING, **options: Any) -> Any:
    """A key that changes an update."""
    return attrs.field(default=default, metadata={"kind": "identity"}, kw_only=True, **options)


def mechanics(default: Any = attrs.NOTHING, **options: Any) -> Any:
    """A key that changes how, not what."""
    return attrs.field(default=default, metadata={"kind": "mechanics"}, kw_only=True, **options)


def patterns(_instance: Any, field: "attrs.Attribute[Any]", value: str | tuple[str, ...]) -> None:
    """Validator: regular expressions."""
    for pattern in (value,) if isinstance(value, str) else value:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"'{field.name}' holds {pattern!r}, which is no regular expression: {error}") from None


def at_least_one(_instance: Any, field: "attrs.Attribute[Any]", value: int | str) -> None:
    """Validator: a count, or a word for it."""
    if isinstance(value, int) and value < 1:
        raise ValueError(f"'{field.name}' must be >= 1: {value}")


@attrs.frozen
class RunSection:
    """`[run]`"""

    name: str = mechanics("run", validator=attrs.validators.matches_re(r"[A-Za-z0-9][A-Za-z0-9._-]*"))
    """First part of the run's id, and so of its folder."""
    root: Path = mechanics(Path("runs"))
    """Folder that holds the runs."""
    seed: int = identity(17, validator=attrs.validators.and_(attrs.validators.ge(0), attrs.validators.lt(2**63)))
    """Of the data order and of all randomness."""
    group: str = mechanics("")
    """Passed on to trackers."""
    import_from: tuple[Path, ...] = mechanics(())
    """Folders of the files that say a `uses`. ike writes it into a run's config.toml: who says it is resolved, so that
    neither the file's own folder is added nor any default tracker."""


@attrs.frozen
class LoraSection:
    """`[model.lora]`: the model is frozen, and what learns are low-rank adapters beside its layers."""

    rank: int = identity(16, validator=attrs.validators.ge(1))
    """Columns of an adapter's matrices."""
    alpha: float = identity(32.0, validator=attrs.validators.gt(0.0))
    """An adapter's product counts alpha / rank times; alpha / sqrt(rank) times with variant = "rslora"."""
    dropout: float = identity(0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of an adapter's inputs that is dropped in training."""
    target_modules: tuple[str, ...] = identity(())
    """Layers that get an adapter, by name or its last parts, as 'q_proj'. Empty: every linear layer but the head."""
    modules_to_save: tuple[str, ...] = identity(())
    """Modules, named the same way, that learn whole beside the adapters and are saved with them."""
    variant: Literal["lora", "dora", "rslora"] = identity("lora")
    """dora: magnitudes of the weights' rows learn of their own."""


def alone(section: "ModelSection", _field: "attrs.Attribute[Any]", value: LoraSection | None) -> None:
    """Validator: what learns is said in one place."""
    if value is None:
        return
    for name, said in (("freeze", section.freeze), ("train", section.train)):
        if said:
            raise ValueError(
                f"'lora' freezes all of the model, so '{name}' can't be said as well; name what else is to learn in "
                "lora.modules_to_save"
            )


@attrs.frozen
class ModelSection:
    """`[model]`: the part's own keys, and those that core takes for any part."""

    part: Component = identity()
    attention: str = mechanics("auto")
    """'auto', or any name that transformers knows."""
    activation_checkpointing: bool = mechanics(False)
    """Recompute activations in the backward instead of keeping them."""
    freeze: tuple[str, ...] = identity((), validator=patterns)
    """Regular expressions over parameter names: these don't learn."""
    train: tuple[str, ...] = identity((), validator=patterns)
    """Regular expressions over parameter names: only these learn."""
    lora: LoraSection | None = identity(None, validator=alone)
    """None: the model's own parameters learn."""


@attrs.frozen
class FrozenSection:
    """`[frozen.<name>]`: a model that doesn't learn. Its part's `path` left out: the policy as it stood at step 0.

    With `[model.lora]`, and no dtype or attention of its own, that is the policy with its adapter off: no second model.
    """

    part: Component = identity()
    attention: str = mechanics("auto")
    dtype: Literal["float32", "bfloat16", "float64"] | None = identity(None)
    """Of its parameters; None: those of engine.precision."""
    precomputed: bool = mechanics(False)
    """Ask it for the log-probabilities of the run's rows once, before the first step, and keep them in data.cache for
    later runs with the same weights and rows: no step pays for it, in time or memory."""


@attrs.frozen
class DataSection:
    """`[data.valid.<name>]`, laid over data.train's processor, max_tokens and too_long."""

    files: tuple[str, ...] = identity(())
    """Paths, folders and globs, absolute once resolved; or `hf://owner/name[/config][:split]`."""
    source: Component | None = identity(None)
    """In the place of files: a part of the user's own with `__len__` and `__getitem__`."""
    limit: int = identity(0, validator=attrs.validators.ge(0))
    """Rows at most; 0: all."""
    max_tokens: int = identity(0, validator=attrs.validators.ge(0))
    """Of an example; 0: the smaller of batch.tokens_per_device and the model's positions."""
    too_long: Literal["skip", "truncate_left", "truncate_right"] = identity("skip")
    """What becomes of an example with more tokens."""
    processor: Component | None = identity(None)
    """What reads a row."""


@attrs.frozen
class SourceSection:
    """`[data.train.sources.<name>]`: some of the rows. What it leaves out of the last three is data.train's."""

    files: tuple[str, ...] = identity(())
    """Paths and globs, absolute once resolved."""
    source: Component | None = identity(None)
    """In the place of files: a part of the user's own with `__len__` and `__getitem__`."""
    limit: int = identity(0, validator=attrs.validators.ge(0))
    """Rows at most; 0: all."""
    weight: float | None = identity(None, validator=attrs.validators.optional(attrs.validators.ge(0.0)))
    """Its share of what data.train.mix_by counts, in any unit. None: all sources are one set."""
    max_repeats: int = identity(0, validator=attrs.validators.ge(0))
    """Passes over it at most; 0: no limit. Then the others share what was its."""
    max_tokens: int = identity(0, validator=attrs.validators.ge(0))
    """Of an example; 0: the smaller of batch.tokens_per_device and the model's positions."""
    too_long: Literal["skip", "truncate_left", "truncate_right"] = identity("skip")
    """What becomes of an example with more tokens."""
    processor: Component | None = identity(None)
    """What reads a row."""


@attrs.frozen
class StageSection:
    """`[data.train.stages.<name>]`: other weights from a step on."""

    from_step: int = identity(validator=attrs.validators.ge(1))
    """Updates before it."""
    weights: Mapping[str, float] = identity(validator=attrs.validators.min_len(1))
    """Of the sources named; the others keep theirs."""


def weighted_sources(section: "TrainSection", _field: "attrs.Attribute[Any]", value: Mapping[str, Any]) -> None:
    """Validator: weights are said of all or of none, and with what they share out."""
    without = [name for name, source in value.items() if source.weight is None]
    if value and not without and section.mix_by is None:
        raise ValueError('\'sources\' have weights, of what? Say mix_by = "documents", "tokens" or "supervised_tokens"')
    if 0 < len(without) < len(value):
        raise ValueError(f"'sources' must all have a weight, or none; {without[0]} has none")
    if value and not without and not any(source.weight for source in value.values()):
        raise ValueError("'sources' must have a weight above 0, one at least")
    for name in without:
        if value[name].max_repeats:
            raise ValueError(
                f"'sources' without weights are one set; give them weights, or leave out {name}.max_repeats"
            )


def mixes(section: "TrainSection", _field: "attrs.Attribute[Any]", value: str | None) -> None:
    """Validator: there is something to mix."""
    if value is not None and all(source.weight is None for source in section.sources.values()):
        raise ValueError("'mix_by' is for sources with weights, and there are none; give them weights, or remove it")


def weighted_stages(section: "TrainSection", _field: "attrs.Attribute[Any]", value: Mapping[str, Any]) -> None:
    """Validator: stages are of sources that have weights, one a step, and each draws something."""
    weights = {name: source.weight for name, source in section.sources.items()}
    if value and (not weights or None in weights.values()):
        raise ValueError("'stages' are for sources with weights; give them weights, or remove the stages")
    steps = dict[int, str]()
    for name, stage in sorted(value.items(), key=lambda item: item[1].from_step):
        if unknown := sorted(stage.weights.keys() - weights.keys()):
            raise ValueError(f"'stages' can't weigh {unknown[0]} in {name}; the sources are {', '.join(weights)}")
        weights |= stage.weights
        if min(stage.weights.values()) < 0 or not any(weights.values()):
            raise ValueError(f"'stages' must leave a source with a weight above 0, and none below; {name} does not")
        if other := steps.get(stage.from_step):
            raise ValueError(f"'stages' can't begin at the same step, {stage.from_step}: {other} and {name} do")
        steps[stage.from_step] = name


@attrs.frozen
class TrainSection:
    """`[data.train]`: its files, a source, or named sources of it."""

    files: tuple[str, ...] = identity(())
    """Paths and globs, absolute once resolved."""
    source: Component | None = identity(None)
    """In the place of files: a part of the user's own with `__len__` and `__getitem__`."""
    sources: Mapping[str, SourceSection] = identity(attrs.Factory(dict), validator=weighted_sources)
    """In the place of files. With weights they are mixed, without them they are one set."""
    mix_by: Literal["documents", "tokens", "supervised_tokens"] | None = identity(None, validator=mixes)
    """What the sources' weights are shares of."""
    stages: Mapping[str, StageSection] = identity(attrs.Factory(dict), validator=weighted_stages)
    """Weights by step."""
    limit: int = identity(0, validator=attrs.validators.ge(0))
    """Rows at most, of files; 0: all."""
    max_tokens: int = identity(0, validator=attrs.validators.ge(0))
    """Of an example; 0: the smaller of batch.tokens_per_device and the model's positions."""
    too_long: Literal["skip", "truncate_left", "truncate_right"] = identity("skip")
    """What becomes of an example with more tokens."""
    processor: Component | None = identity(None)
    """What reads a row."""


@attrs.frozen
class HoldoutSection:
    """`[data.holdout]`: training rows (of every source) kept for evaluation, drawn before they are processed.

    Exactly one of the two.
    """

    count: int = identity(0, validator=attrs.validators.ge(0))
    share: float = identity(0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])


@attrs.frozen
class LedgerSection:
    """`[data.ledger]`"""

    budget: float = mechanics(0.01, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)])
    """Share of rows that may be unusable before the run is refused."""


def set_names(_instance: Any, _field: "attrs.Attribute[Any]", value: Mapping[str, Any]) -> None:
    """Validator: names of `[data.valid.<name>]`."""
    if taken := sorted(value.keys() & {"holdout", "train"}):
        raise ValueError(f"can't have a set named {taken[0]}: ike reports its own under that name")


@attrs.frozen
class Data:
    """`[data]`"""

    train: TrainSection | None = identity(None)
    valid: Mapping[str, DataSection] = mechanics(attrs.Factory(dict), validator=set_names)
    holdout: HoldoutSection | None = identity(None)
    ledger: LedgerSection = mechanics(attrs.Factory(LedgerSection))
    cache: Path | None = mechanics(None)
    """Folder where processed rows are kept for later runs; None: ike/data in the user's cache folder."""
    workers: int | Literal["auto"] = mechanics("auto", validator=at_least_one)
    """Processes that process rows on each host; auto: one per core, where it takes long enough to start them."""


@attrs.frozen
class EngineSection:
    """`[engine]`"""

    part: Component = mechanics()
    """Of its own keys only `raw` is identity."""
    precision: Literal["fp32", "bf16", "fp64"] = identity("fp32")
    """bf16: bf16 parameters, float32 masters, moments and gradient sums. fp64: the plain engine only."""
    clip_norm: float = identity(1.0, validator=attrs.validators.ge(0.0))
    """Largest gradient norm; 0: no clipping."""
    on_nonfinite: Literal["stop", "skip"] = identity("stop")
    """What a loss or gradient that is not finite does. Either way the update is not kept."""
    skip_budget: int = identity(10, validator=attrs.validators.ge(0))
    """Updates that may be skipped before the run stops all the same."""


@attrs.frozen
class GroupSection:
    """`[optimizer.groups.<name>]`: parameters with rates of their own; the first group that matches takes one."""

    match: str = identity(validator=patterns)
    """Regular expression, searched in parameter names."""
    lr_scale: float = identity(1.0, validator=attrs.validators.ge(0.0))
    weight_decay: float | None = identity(None, validator=attrs.validators.optional(attrs.validators.ge(0.0)))
    """Of the group's matrices; None: the optimizer's."""
    schedule: Component | None = identity(None)
    """None: the run's."""


@attrs.frozen
class OptimizerSection:
    """`[optimizer]`"""

    part: Component = identity()
    peak_lr: float = identity(1e-5, validator=attrs.validators.ge(0.0))
    """Learning rate where the schedule's factor is 1."""
    groups: Mapping[str, GroupSection] = identity(attrs.Factory(dict))


@attrs.frozen
class BatchSection:
    """`[batch]`"""

    examples_per_step: int = identity(64, validator=attrs.validators.ge(1))
    """Over all ranks: a run means the same on 1 or 64 GPUs."""
    tokens_per_device: int = mechanics(8192, validator=attrs.validators.ge(2))
    """Ceiling of one micro-batch on one rank."""
    examples_per_device: int = mechanics(0, validator=attrs.validators.ge(0))
    """Ceiling of one micro-batch on one rank; 0: no further limit."""
    packing: Literal["auto", "required", "off"] = mechanics("auto")
    """Documents end to end in a row; auto pads where the model can't read such rows."""
    collate: Component | None = mechanics(None)
    """None: ike_tasks:Packed for an objective, ike_core.runtime:Padded for a plain function."""


@attrs.frozen
class LengthSection:
    """`[length]`: exactly one of the two."""

    epochs: float | None = mechanics(None, validator=attrs.validators.optional(attrs.validators.gt(0.0)))
    steps: int | None = mechanics(None, validator=attrs.validators.optional(attrs.validators.ge(1)))


@attrs.frozen
class Every:
    """How often: exactly one of the two."""

    steps: int | None = mechanics(None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    epochs: float | None = mechanics(None, validator=attrs.validators.optional(attrs.validators.gt(0.0)))


@attrs.frozen
class CadenceSection:
    """`[cadence]`. Evaluation is also due before the first step and at the end, a save at the end."""

    log: Every = mechanics(attrs.Factory(lambda: Every(steps=10)))
    evaluate: Every = mechanics(attrs.Factory(lambda: Every(epochs=1.0)))
    save: Every | None = mechanics(None)
    """None: at the end only."""


@attrs.frozen
class EvaluateSection:
    """`[evaluate.<name>]`: an inference task, or an objective on other data."""

    part: Component = mechanics()
    files: tuple[str, ...] = mechanics(validator=attrs.validators.min_len(1))
    """Paths, folders and globs, absolute once resolved; or `hf://owner/name[/config][:split]`."""
    limit: int = mechanics(0, validator=attrs.validators.ge(0))
    cadence: Every | None = mechanics(None)
    """None: cadence.evaluate."""
    processor: Component | None = mechanics(None)
    max_tokens: int = mechanics(0, validator=attrs.validators.ge(0))
    too_long: Literal["skip", "truncate_left", "truncate_right"] = mechanics("skip")


@attrs.frozen
class InferenceSection:
    """`[inference]`"""

    part: Component = mechanics()
    files: tuple[str, ...] = mechanics(validator=attrs.validators.min_len(1))
    """Paths, folders and globs, absolute once resolved; or `hf://owner/name[/config][:split]`."""
    output: Path = mechanics()
    """One row a record, in input order, each exactly once; the record's own columns kept."""
    limit: int = mechanics(0, validator=attrs.validators.ge(0))


@attrs.frozen
class LaunchSection:
    """`[launch]`"""

    ranks: int | Literal["auto"] = mechanics("auto")
    """auto: one per GPU, else 1."""
    port: int = mechanics(0, validator=[attrs.validators.ge(0), attrs.validators.lt(65536)])
    """Where the ranks meet; 0: a free one."""


@attrs.frozen(kw_only=True)
class Sections:
    """A run file, typed. A table that is absent and has no default is None."""

    run: RunSection = identity(attrs.Factory(RunSection))
    model: ModelSection | None = identity(None)
    frozen: Mapping[str, FrozenSection] = identity(attrs.Factory(dict))
    tokenizer: Component | None = identity(None)
    data: Data = identity(attrs.Factory(Data))
    objective: Component | None = identity(None)
    engine: EngineSection = identity()
    optimizer: OptimizerSection = identity()
    schedule: Component = identity()
    batch: BatchSection = identity(attrs.Factory(BatchSection))
    length: LengthSection = mechanics(attrs.Factory(lambda: LengthSection(epochs=1.0)))
    cadence: CadenceSection = mechanics(attrs.Factory(CadenceSection))
    evaluate: Mapping[str, EvaluateSection] = mechanics(attrs.Factory(dict))
    checkpoint: Component | None = mechanics(None)
    hooks: Mapping[str, Component] = identity(attrs.Factory(dict))
    inference: InferenceSection | None = mechanics(None)
    trackers: Mapping[str, Component] = mechanics(attrs.Factory(dict))
    launch: LaunchSection = mechanics(attrs.Factory(LaunchSection))
