"""The words, the settings, the loop and the engines of ike.

Importing this package imports no torch.
"""

from ike_core.__about__ import __version__
from ike_core.batch import Batch, Vocabulary, weigh
from ike_core.config import Config, load_config
from ike_core.console import ConsoleTracker
from ike_core.context import Context
from ike_core.door import synchronize_workers
from ike_core.errors import CheckpointError, ConfigError, DataError, IkeError, LaunchError, TrainingError
from ike_core.examples import (
    Comparison,
    Example,
    LabelledExample,
    Segment,
    Skip,
    preference_pair,
)
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
