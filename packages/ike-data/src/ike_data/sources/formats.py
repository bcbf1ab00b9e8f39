"""What a file is by its name: a format, and the compression around it."""

from enum import StrEnum
from pathlib import Path


class Format(StrEnum):
    """How the rows of a file are written; the value is what messages call it."""

    JSON_LINES = "JSON lines"
    JSON = "JSON"
    CSV = "CSV"
    TSV = "TSV"
    PARQUET = "Parquet"
    ARROW = "Arrow"
    TEXT = "text"
    MEGATRON = "Megatron token index"
    TOKEN_ARRAY = "array of tokens"


FORMATS = {
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".txt": Format.TEXT,
    ".idx": Format.MEGATRON,
    ".npy": Format.TOKEN_ARRAY,
}
TOKEN_INDEXES = frozenset({Format.MEGATRON, Format.TOKEN_ARRAY})
"""Formats of tokens, read in place by `open_source`: they hold examples, not rows."""
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".xz": "xz", ".bz2": "bzip2"}
KINDS = f"{', '.join(FORMATS)}; those with rows also with {', '.join(COMPRESSIONS)} behind"
"""For messages."""


def compression_of(path: Path) -> str:
    """What the name says; '' for none. The bytes decide: see `ike_data.sources.compressed`."""
    return COMPRESSIONS.get(path.suffix.lower(), "")


def format_of(path: Path) -> Format | None:
    """What the name says, whatever compression stands behind; None: no kind of file that ike reads."""
    if compression_of(path):
        found = FORMATS.get(path.with_suffix("").suffix.lower())
        return None if found in TOKEN_INDEXES else found
    return FORMATS.get(path.suffix.lower())
