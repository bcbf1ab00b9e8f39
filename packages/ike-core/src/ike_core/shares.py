"""Weights of sources by what they share out, as shares of the draws, each of which is one example."""

from collections.abc import Callable, Mapping, Sequence

from ike_core.config.sections import TrainSection
from ike_core.errors import ConfigError
from ike_core.interfaces import Dataset
from ike_core.mixed_dataset import MixedDataset
from ike_core.mixing import MixedSource, MixingStage, Mixture
from ike_core.ordering import Ordering, Permutation
from ike_core.randomness import key

SAMPLE = 65_536
"""Examples that a source's mean length is taken over at most: its standard error is then 1 / 256 of their spread."""

_COUNTS: Mapping[str, Callable[[Dataset, int], float]] = {
    "documents": lambda dataset, index: 1.0,  # noqa: ARG005
    "tokens": lambda dataset, index: dataset.size(index),
    "supervised_tokens": lambda dataset, index: dataset.weights(index)["tokens"],
}
"""What an example counts, by `mix_by`."""


def order_of(section: TrainSection, dataset: Dataset, *, examples_per_step: int, seed: int) -> Ordering | Mixture:
    """Which examples make a step: of sources with weights their mixture, else of the whole set."""
    if section.mix_by is None or not isinstance(dataset, MixedDataset):
        return Ordering(len(dataset), examples_per_step, seed)
    means = [_mean(name, part, section.mix_by) for name, part in dataset.parts.items()]
    sources = tuple(
        MixedSource(name=name, size=len(part), passes=section.sources[name].max_repeats)
        for name, part in dataset.parts.items()
    )
    return Mixture(sources, tuple(_stages(section, means)), examples_per_step, seed)


def _stages(section: TrainSection, means: Sequence[float]) -> list[MixingStage]:
    weights = {name: source.weight or 0.0 for name, source in section.sources.items()}
    by_step = sorted(section.stages.values(), key=lambda stage: stage.from_step)
    stages = [MixingStage(0, _shares(weights, means))]
    for stage in by_step:
        weights |= stage.weights
        stages.append(MixingStage(stage.from_step, _shares(weights, means)))
    return stages


def _shares(weights: Mapping[str, float], means: Sequence[float]) -> tuple[float, ...]:
    return tuple(weight / mean for weight, mean in zip(weights.values(), means, strict=True))


def _mean(name: str, dataset: Dataset, counted: str) -> float:
    """What an example of a source counts in the mean; of a sample where the source is large, alike on every rank."""
    size = len(dataset)
    order = Permutation(size, key(name))
    sample = range(size) if size <= SAMPLE else [order[place] for place in range(SAMPLE)]
    total = sum(_COUNTS[counted](dataset, index) for index in sample)
    if size and not total:
        raise ConfigError(
            f'data.train.sources.{name} has no {counted}, which data.train.mix_by = "{counted}" shares out'
        )
    return total / len(sample) if sample else 1.0
