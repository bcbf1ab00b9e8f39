"""How many GPUs this process may use, asked without torch."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs

from ike_core.errors import ConfigError, LaunchError

_PROC_GPUS = Path("/proc/driver/nvidia/gpus")


@attrs.frozen
class Gpus:
    """A number, and who says so."""

    count: int
    source: str

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> "Gpus":
        """CUDA_VISIBLE_DEVICES where it is set (it is never written), else what the driver lists."""
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        if environment.get("DS_ACCELERATOR") == "cpu":
            return cls(0, "DS_ACCELERATOR=cpu")
        if visible is not None:
            return cls(len(_listed(visible)), f"CUDA_VISIBLE_DEVICES={visible}")
        return cls(_count(), "the NVIDIA driver")

    def ranks(self, asked: int | str) -> int:
        """`launch.ranks` as a number: "auto" is one a GPU, else 1. LaunchError for more than there are GPUs."""
        if asked == "auto":
            return max(1, self.count)
        ranks = int(asked)
        if ranks < 1:
            raise ConfigError(f"launch.ranks = {ranks} must be at least 1, or auto")
        if self.count and ranks > self.count:
            raise LaunchError(
                f"launch.ranks = {ranks}, but {self.source} lists {self.count} GPU{'s' if self.count > 1 else ''}; "
                f"ask for at most {self.count}, or set CUDA_VISIBLE_DEVICES= (empty) to run on the CPU"
            )
        return ranks


def _listed(visible: str) -> list[str]:
    """As CUDA reads the variable: the entries before the first that is empty or -1."""
    entries = []
    for entry in map(str.strip, visible.split(",")):
        if entry in ("", "-1"):
            break
        entries.append(entry)
    return entries


def _count() -> int:
    """What `nvidia-smi -L` lists (in a container: what it was given), else the driver's own folder."""
    if shutil.which("nvidia-smi"):
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
        if listing.returncode == 0:
            return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return len(list(_PROC_GPUS.iterdir())) if _PROC_GPUS.is_dir() else 0
