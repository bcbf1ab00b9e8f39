"""Rows to examples: readers, tokenizers, exact supervision, the ledger.

Importing this package imports neither torch nor transformers.
"""

from importlib.metadata import version

from ike_data.dataset import read_dataset
from ike_data.instruction import InstructionProcessor
from ike_data.rows import read_records
from ike_data.tokenizers import HFTokenizer

__version__ = version("ike-data")

__all__ = ["HFTokenizer", "InstructionProcessor", "__version__", "read_dataset", "read_records"]
