"""Small files, whole or not at all."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """The file has this content, also after a power cut, or what it had before."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
