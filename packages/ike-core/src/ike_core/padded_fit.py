"""Whether every comparison fits a micro-batch where rows are padded: there a branch is a row, its trunk in front."""

from collections.abc import Mapping
from typing import Any

from ike_core.cutting import Ceiling
from ike_core.errors import ConfigError
from ike_core.interfaces import Dataset, World


def check_padded(datasets: Mapping[str, Dataset], ceiling: Ceiling, world: World) -> None:
    """Collective, before the first step: each rank looks at its share of the rows. ConfigError names the first.

    Other examples are as long padded as they are packed, which the length policy has seen to.
    """
    if not ceiling.pads:
        return
    for name, dataset in datasets.items():
        found = [row for row in world.gather(_first_too_large(dataset, ceiling.tokens, world)) if row is not None]
        if found:
            _, source, rows, size = min(found)
            raise ConfigError(
                f"{source}: batch.tokens_per_device = {ceiling.tokens} can't hold this row of the {name} data, which "
                f"padded takes {rows} rows of {size} tokens; raise it to {rows * size}, lower max_tokens, or use a "
                "model that reads packed rows (batch.packing), in which its parts lie once"
            )


def _first_too_large(dataset: Dataset, ceiling: int, world: World) -> Any:
    """Of this rank's share: index, source, rows, tokens of a row. None: all fit."""
    for index in range(world.rank, len(dataset), world.size):
        # p rows of l tokens, at least one token a branch: of `size` tokens p * l is at most ((size + 1) / 2) ** 2
        if (dataset.size(index) + 1) ** 2 <= 4 * ceiling or not dataset.weights(index)["pairs"]:
            continue
        example = dataset[index]
        rows, size = len(example.branches), example.tree.longest_path
        if rows * size > ceiling:
            return [index, example.source, rows, size]
    return None
