"""How much of a file is held at once."""

from ike_data.sources.broken import BrokenFileError

LONGEST_ROW = 1 << 28
"""Bytes of one row, 256 MiB: what is longer is a file without line ends, or a quote or bracket that never closes."""


def check_row(size: int, what: str) -> None:
    """BrokenFileError where a row (`what`: a line, an element, ...) is longer than that."""
    if size > LONGEST_ROW:
        raise BrokenFileError(
            f"{what} that starts here is longer than {LONGEST_ROW >> 20} MiB; is a line end or a quote missing?"
        )
