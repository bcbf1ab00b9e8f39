"""Ranks for the tests of ike-ckpt: real processes that meet through a file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEADLINE_SECONDS = 120

PRELUDE = """
import json, sys
from pathlib import Path
import torch
from torch import distributed
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
torch.manual_seed(0)
distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
said = {}
"""

EPILOGUE = """
(folder / f"said-{rank}.json").write_text(json.dumps(said))
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.fixture(scope="session")
def run_ranks() -> Callable[[str, int, Path], list[dict[str, Any]]]:
    """Runs a script on gloo ranks, which knows `rank`, `size` and `folder`; what each put into `said`, by rank."""

    def run(script: str, size: int, folder: Path) -> list[dict[str, Any]]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", PRELUDE + script + EPILOGUE]
        children = [
            subprocess.Popen([*command, str(rank), str(size), str(folder)], env=environment) for rank in range(size)
        ]
        try:
            codes = [child.wait(DEADLINE_SECONDS) for child in children]
        finally:
            for child in children:
                child.kill()
        assert codes == [0] * size
        return [json.loads((folder / f"said-{rank}.json").read_text()) for rank in range(size)]

    return run
