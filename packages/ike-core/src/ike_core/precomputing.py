"""`[frozen.<name>] precomputed = true`: the model is asked once, before the first step, and then let go."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ike_core.batch import Batch
from ike_core.config import Config
from ike_core.datasets import Datasets
from ike_core.door import locate
from ike_core.errors import ConfigError
from ike_core.feed import Batches
from ike_core.frozen_models import FrozenModels
from ike_core.run_setup import RunSetup

PRECOMPUTING = "ike_tasks.precomputing:Precomputing"


def precompute(
    setup: RunSetup, frozen: FrozenModels, datasets: Datasets, batches: Batches, place: Callable[[Batch], Batch]
) -> Batches:
    """Collective: replaces those models in `frozen`; the batches that bring along what they said of the run's rows.

    ConfigError where batches are not made by a collate of ike's.
    """
    for name, section in setup.config.frozen.items():
        if not section.precomputed:
            continue
        if not batches.counts_as_weigh:
            raise ConfigError(
                f"frozen.{name}.precomputed goes with ike's own collates, and the run has another; leave it out"
            )
        asked: Any = locate(PRECOMPUTING)(
            name=name,
            model=frozen[name],
            datasets=[datasets.train, *datasets.valid.values(), *datasets.evaluate.values()],
            batches=batches,
            place=place,
            world=setup.world,
            folder=_cache(setup.config),
            say=setup.trackers.say,
        )
        frozen[name], batches = asked.run()
    return batches


def _cache(config: Config) -> Path:
    """Beside the stores of processed rows."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ike"
    return (config.data.cache or own) / "frozen"
