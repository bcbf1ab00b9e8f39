"""Weights of what is shared out to shares of examples; several datasets as one."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest

from ike_core.config.sections import SourceSection, StageSection, TrainSection
from ike_core.errors import ConfigError
from ike_core.examples import Example
from ike_core.mixed_dataset import MixedDataset
from ike_core.mixing import MixingStage, Mixture
from ike_core.ordering import Ordering
from ike_core.shares import SAMPLE, order_of


@attrs.frozen
class Rows:
    """A dataset of rows of so many tokens, so many of them learned."""

    tokens: Sequence[int]
    learned: int = 1

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Example:
        return Example.of(range(self.tokens[index]), [1.0] * self.tokens[index], index=index)

    def size(self, index: int) -> int:
        return self.tokens[index]

    def weights(self, index: int) -> Mapping[str, float]:
        return {"tokens": float(self.learned)}


def order(parts: Mapping[str, Rows], mix_by: Any, weights: Mapping[str, float], **stages: StageSection) -> Any:
    sources = {name: SourceSection(files=("x",), weight=weight) for name, weight in weights.items()}
    section = TrainSection(sources=sources, mix_by=mix_by, stages=stages)
    return order_of(section, MixedDataset(parts), examples_per_step=4, seed=1)


def shares(mixture: Mixture) -> list[list[float]]:
    """Of each stage, as parts of one."""
    return [[share / sum(stage.shares) for share in stage.shares] for stage in mixture.stages]


def test_shares_of_tokens_are_weights_over_mean_lengths() -> None:
    """Means 10 and 30, weights 1 and 1: 1/10 to 1/30 examples are 3 to 1."""
    parts = {"a": Rows([5, 15]), "b": Rows([30])}
    assert shares(order(parts, "tokens", {"a": 1.0, "b": 1.0})) == [pytest.approx([0.75, 0.25])]


def test_shares_of_supervised_tokens_go_by_what_is_learned() -> None:
    parts = {"a": Rows([10], learned=1), "b": Rows([10], learned=4)}
    assert shares(order(parts, "supervised_tokens", {"a": 1.0, "b": 2.0})) == [pytest.approx([2 / 3, 1 / 3])]


def test_a_stage_keeps_the_weights_that_it_does_not_name() -> None:
    later, last = StageSection(from_step=9, weights={"a": 6.0}), StageSection(from_step=20, weights={"b": 0.0})
    made = order({"a": Rows([1]), "b": Rows([1])}, "documents", {"a": 1.0, "b": 2.0}, last=last, later=later)
    assert made.stages == (MixingStage(0, (1.0, 2.0)), MixingStage(9, (6.0, 2.0)), MixingStage(20, (6.0, 0.0)))


def test_the_mean_of_a_large_source_is_that_of_a_sample_near_enough() -> None:
    """Lengths 1 to 101 alike often: mean 51, deviation 29.2, of 65,536 a standard error of 0.11."""
    large = Rows([1 + index % 101 for index in range(3 * SAMPLE)])
    ((a, b),) = shares(order({"a": large, "b": Rows([51])}, "tokens", {"a": 1.0, "b": 1.0}))
    assert a / b == pytest.approx(1.0, abs=4 * 0.11 / 51)


def test_sources_without_weights_are_ordered_as_one_set() -> None:
    sources = {name: SourceSection(files=("x",)) for name in "ab"}
    dataset = MixedDataset({"a": Rows([1] * 3), "b": Rows([1] * 4)})
    made = order_of(TrainSection(sources=sources), dataset, examples_per_step=4, seed=1)
    assert made == Ordering(7, 4, 1)


def test_a_source_that_has_none_of_what_is_shared_out_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"sources\.b has no supervised_tokens"):
        order({"a": Rows([3]), "b": Rows([3], learned=0)}, "supervised_tokens", {"a": 1.0, "b": 1.0})


def test_an_index_counts_through_the_datasets() -> None:
    dataset = MixedDataset({"a": Rows([5, 6]), "b": Rows([]), "c": Rows([7])})
    assert [(dataset.size(index), dataset.source_of(index)) for index in range(3)] == [(5, "a"), (6, "a"), (7, "c")]
    assert [dataset[index].index for index in (0, 1, 2, -1)] == [0, 1, 2, 2]
    assert len(dataset[-1]) == 7
    with pytest.raises(IndexError):
        dataset[3]
