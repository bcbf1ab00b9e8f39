"""What every test needs: no network, the CPU, and the data beside the project where it is there."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).parent))  # for `from ranks import Ranks`, here and in tests

from ranks import Ranks

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test reads what an earlier one has kept for the user, or leaves anything there.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="ike-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# A busy machine is no failing property.
settings.register_profile("ike", deadline=None)
settings.load_profile("ike")

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything but tests/gpu runs on the CPU, whatever the machine has."""
    if not any("gpu" in item.path.parts for item in items):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["DS_ACCELERATOR"] = "cpu"


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """`ranks(2, "script.py", "word", deadline_seconds=60)`, where the subject is not how ranks are started."""
    with Ranks() as ranks:
        yield ranks


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """`../shared/data`: real data and a real tiny model; a test that needs it is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"needs {SHARED}, which is not part of the project")
    return SHARED


@pytest.fixture(scope="session")
def stories(shared_data: Path) -> Path:
    """A trained Llama of 260,032 parameters, with its tokenizer."""
    return shared_data / "stories260K"
