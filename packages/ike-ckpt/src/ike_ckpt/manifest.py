"""`manifest.json`: every file of a step with its size and hash. Written last, so a folder that has one is complete."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import attrs

from ike_ckpt.disk import write_json
from ike_ckpt.hashing import hash_of_file
from ike_core.errors import CheckpointError

NAME = "manifest.json"
FORMAT = "ike-checkpoint-1"


@attrs.frozen
class FileRecord:
    """A file as it was written."""

    bytes: int
    hash: str
    """xxh3_128, 32 hexadecimal digits."""


@attrs.frozen
class Manifest:
    """The files of a step folder, by their paths in it."""

    files: Mapping[str, FileRecord]

    @classmethod
    def of(cls, folder: Path, known: Mapping[str, FileRecord]) -> "Manifest":
        """Of what lies there; those whose hash is not `known` from their writing are read once."""
        files = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            files[name] = known.get(name) or FileRecord(path.stat().st_size, hash_of_file(path))
        return cls(files)

    def write(self, folder: Path) -> None:
        """On disk when this returns."""
        files = {name: attrs.asdict(record) for name, record in self.files.items()}
        write_json(folder / NAME, {"format": FORMAT, "files": files})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """CheckpointError where there is none, or it names anything but files of this folder."""
        path = folder / NAME
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            if said["format"] != FORMAT:
                raise CheckpointError(f"{path} is of format {said['format']!r}; this ike reads {FORMAT!r}")
            return cls({_inside(name): _record(record) for name, record in said["files"].items()})
        except FileNotFoundError as error:
            raise CheckpointError(f"{folder} is no complete step: it has no {NAME}, which is written last") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is damaged: {error!r}") from error

    def check_sizes(self, folder: Path) -> None:
        """CheckpointError naming every file that is missing or of another size, and none is read."""
        wrong = []
        for name, record in self.files.items():
            path = folder / name
            if path.is_symlink() or not path.is_file():
                wrong.append(f"{name} is missing")
            elif (size := path.stat().st_size) != record.bytes:
                wrong.append(f"{name} has {size} bytes, and {record.bytes} were written")
        if wrong:
            raise CheckpointError(f"{folder} is damaged: {'; '.join(wrong[:8])}")

    def check_hashes(self, folder: Path, names: Iterable[str]) -> None:
        """CheckpointError naming every one of these files whose bytes are not those that were written."""
        wrong = [name for name in names if hash_of_file(folder / name) != self.files[name].hash]
        if wrong:
            raise CheckpointError(f"{folder} is damaged: the bytes of {', '.join(wrong)} are not those written")


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise ValueError(f"{name!r} is not a path inside the step's folder")
    return name


def _record(said: Mapping[str, object]) -> FileRecord:
    size, hashed = said["bytes"], said["hash"]
    if not isinstance(size, int) or not isinstance(hashed, str):
        raise TypeError("a file has bytes (a whole number) and a hash")
    return FileRecord(size, hashed)
