"""The words, the settings, the loop and the engines of ike.

Importing this package imports no torch, and each name's module on first use: a command that only reads settings pays
for no loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ike_core.__about__ import __version__

if TYPE_CHECKING:
    from ike_core.batch import Batch, Vocabulary, weigh
    from ike_core.config import Config, load_config
    from ike_core.console import ConsoleTracker
    from ike_core.context import Context
    from ike_core.door import synchronize_workers
    from ike_core.errors import CheckpointError, ConfigError, DataError, IkeError, LaunchError, TrainingError
    from ike_core.examples import Comparison, Example, LabelledExample, Segment, Skip, preference_pair
    from ike_core.inference import InferencePipeline
    from ike_core.interfaces import DataProcessor, Tokenizer
    from ike_core.json_lines import JsonLinesTracker
    from ike_core.layout import Layout, Tree
    from ike_core.mean import Mean
    from ike_core.progress import Progress
    from ike_core.schedule import Schedule
    from ike_core.step_output import StepOutput
    from ike_core.training import TrainingPipeline

__all__ = [
    "Batch",
    "CheckpointError",
    "Comparison",
    "Config",
    "ConfigError",
    "ConsoleTracker",
    "Context",
    "DataError",
    "DataProcessor",
    "Example",
    "IkeError",
    "InferencePipeline",
    "JsonLinesTracker",
    "LabelledExample",
    "LaunchError",
    "Layout",
    "Mean",
    "Progress",
    "Schedule",
    "Segment",
    "Skip",
    "StepOutput",
    "Tokenizer",
    "TrainingError",
    "TrainingPipeline",
    "Tree",
    "Vocabulary",
    "__version__",
    "load_config",
    "preference_pair",
    "synchronize_workers",
    "weigh",
]

_ROOMS = {
    "batch": ("Batch", "Vocabulary", "weigh"),
    "config": ("Config", "load_config"),
    "console": ("ConsoleTracker",),
    "context": ("Context",),
    "door": ("synchronize_workers",),
    "errors": ("CheckpointError", "ConfigError", "DataError", "IkeError", "LaunchError", "TrainingError"),
    "examples": ("Comparison", "Example", "LabelledExample", "Segment", "Skip", "preference_pair"),
    "inference": ("InferencePipeline",),
    "interfaces": ("DataProcessor", "Tokenizer"),
    "json_lines": ("JsonLinesTracker",),
    "layout": ("Layout", "Tree"),
    "mean": ("Mean",),
    "progress": ("Progress",),
    "schedule": ("Schedule",),
    "step_output": ("StepOutput",),
    "training": ("TrainingPipeline",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
