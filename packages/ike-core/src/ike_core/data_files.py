"""Whether the files that a run will read are there, asked before anything that takes long."""

from collections.abc import Iterator
from importlib.util import find_spec

from ike_core.config.config import Config
from ike_core.door import locate

FINDER = "ike_data:find_files"
HUB = "hf://"
"""What begins so is looked for on the hub, when it is read."""


def check_files(command: str, config: Config) -> None:
    """DataError for a path, glob or kind of file of the command's tables that ike-data can't read."""
    if find_spec("ike_data") is None:
        return
    for files in _files(command, config):
        if local := [file for file in files if not file.startswith(HUB)]:
            locate(FINDER)(local)


def _files(command: str, config: Config) -> Iterator[tuple[str, ...]]:
    if command == "infer":
        if config.inference is not None:
            yield config.inference.files
        return
    train = config.data.train
    if train is not None:
        yield train.files
        yield from (source.files for source in train.sources.values())
    yield from (table.files for table in config.data.valid.values())
    yield from (table.files for table in config.evaluate.values())
