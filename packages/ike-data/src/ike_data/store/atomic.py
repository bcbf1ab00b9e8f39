"""Small files, whole or not at all."""

import os
from pathlib import Path
from uuid import uuid4


def replace(path: Path, content: bytes) -> None:
    """The file has this content, also after a power cut, or what it had before; whoever else writes it meanwhile."""
    partial = path.with_name(f"{path.name}.{uuid4().hex}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
