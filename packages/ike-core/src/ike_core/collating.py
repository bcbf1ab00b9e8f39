"""A collate of the user's own, or of an objective, in the place of a Collate part."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ike_core.batch import Batch, Vocabulary, weigh
from ike_core.errors import ConfigError
from ike_core.examples import AnyExample
from ike_core.spoken import kind_of, name_of

CollateFn = Callable[[Sequence[AnyExample], Vocabulary], Mapping[str, Any] | Batch]


@attrs.frozen
class OwnCollate:
    """Calls the user's function; makes a Batch of what it returns.

    The function never sees an empty list: filler is the stand-in's row, whose weights are 0 and whose outputs the loop
    drops.
    """

    function: CollateFn
    vocabulary: Vocabulary
    stand_in: AnyExample

    def __call__(self, examples: Sequence[AnyExample]) -> Batch:
        rows = examples or (self.stand_in,)
        made = self.function(rows, self.vocabulary)
        if not isinstance(made, Batch | Mapping):
            raise ConfigError(
                f"{name_of(self.function)} returned {kind_of(made)}; a collate returns "
                "a mapping of tensors, such as {'input_ids': ..., 'labels': ...}, or a Batch"
            )
        batch = made if isinstance(made, Batch) else Batch(made, counted(made, rows))
        if examples:
            return batch
        return attrs.evolve(batch, weights=dict.fromkeys(batch.weights, 0.0))


def counted(tensors: Mapping[str, Any], examples: Sequence[AnyExample]) -> dict[str, float]:
    """The standard weights, with the tokens that `labels` [B, T] (unshifted, -100 ignored) really supervises."""
    weights = weigh(examples)
    if "labels" in tensors:
        weights["tokens"] = float((tensors["labels"][:, 1:] != -100).sum())
    return weights
