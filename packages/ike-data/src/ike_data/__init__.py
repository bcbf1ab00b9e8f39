"""Rows to examples: readers, tokenizers, exact supervision, the ledger.

Importing this package imports neither torch nor transformers.
"""

from ike_data.chat import ChatProcessor
from ike_data.dataset import read_dataset
from ike_data.instruction import InstructionProcessor
from ike_data.rows import read_records
from ike_data.tokenizers import HFTokenizer

__all__ = ["ChatProcessor", "HFTokenizer", "InstructionProcessor", "read_dataset", "read_records"]
