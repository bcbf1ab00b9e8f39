"""Ranks for the tests of ike-ckpt, which meet through a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

DEADLINE_SECONDS = 120

PRELUDE = """
import json, os, sys
from pathlib import Path
import torch
from torch import distributed
rank, size, folder = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), Path(sys.argv[1])
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
def run_ranks(ranks: Ranks) -> Callable[[str, int, Path], list[dict[str, Any]]]:
    """Runs a script on gloo ranks, which knows `rank`, `size` and `folder`; what each put into `said`, by rank."""

    def run(script: str, size: int, folder: Path) -> list[dict[str, Any]]:
        (folder / "rank.py").write_text(PRELUDE + script + EPILOGUE)
        ranks(size, folder / "rank.py", folder, deadline_seconds=DEADLINE_SECONDS).check()
        return [json.loads((folder / f"said-{rank}.json").read_text()) for rank in range(size)]

    return run
