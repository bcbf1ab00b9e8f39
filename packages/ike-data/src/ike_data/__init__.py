"""Rows to examples: readers, tokenizers, exact supervision, the ledger.

Importing this package imports neither torch nor transformers.
"""

from ike_data.chat import ChatProcessor
from ike_data.dataset import read_dataset
from ike_data.feedback import FeedbackProcessor
from ike_data.instruction import InstructionProcessor
from ike_data.preference import PreferenceProcessor
from ike_data.rows import read_records
from ike_data.text import TextProcessor
from ike_data.tokenizers import HFTokenizer

__all__ = [
    "ChatProcessor",
    "FeedbackProcessor",
    "HFTokenizer",
    "InstructionProcessor",
    "PreferenceProcessor",
    "TextProcessor",
    "read_dataset",
    "read_records",
]
