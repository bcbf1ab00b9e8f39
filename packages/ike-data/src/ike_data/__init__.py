"""Rows to examples: readers, tokenizers, exact supervision, the ledger.

Importing this package imports neither torch nor transformers, and each name's module on first use: `ike-data --help` is
instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ike_data.chat import ChatProcessor
    from ike_data.dataset import read_dataset
    from ike_data.feedback import FeedbackProcessor
    from ike_data.instruction import InstructionProcessor
    from ike_data.preference import PreferenceProcessor
    from ike_data.rows import read_records
    from ike_data.sources.opening import open_source
    from ike_data.sources.paths import find_files
    from ike_data.static_batches import StaticBatch, StaticBatches
    from ike_data.text import TextProcessor
    from ike_data.tokenizers import HFTokenizer

__all__ = [
    "ChatProcessor",
    "FeedbackProcessor",
    "HFTokenizer",
    "InstructionProcessor",
    "PreferenceProcessor",
    "StaticBatch",
    "StaticBatches",
    "TextProcessor",
    "find_files",
    "open_source",
    "read_dataset",
    "read_records",
]

_ROOM_OF = {
    "ChatProcessor": "chat",
    "FeedbackProcessor": "feedback",
    "HFTokenizer": "tokenizers",
    "InstructionProcessor": "instruction",
    "PreferenceProcessor": "preference",
    "StaticBatch": "static_batches",
    "StaticBatches": "static_batches",
    "TextProcessor": "text",
    "find_files": "sources.paths",
    "open_source": "sources.opening",
    "read_dataset": "dataset",
    "read_records": "rows",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
