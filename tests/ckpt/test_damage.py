"""What is not as it was written is found before the first step, and named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ike_ckpt.loading import load_step
from ike_ckpt.manifest import Manifest
from ike_ckpt.ranks import ScriptRanks
from ike_ckpt.steps import StepContents, write_step
from ike_core.errors import CheckpointError
from ike_core.fragments import WEIGHT, Fragment
from ike_core.interfaces import SavedModel, SavedState

PROGRESS = {"step": 3, "epoch": 0.5, "examples": 9, "tokens": 90, "supervised_tokens": 9.0, "skipped": 0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A step with a state, a part and a model."""
    step = tmp_path_factory.mktemp("run") / "step-000003"
    pieces = [
        Fragment(name="w", kind=kind, shape=(8,), start=0, values=torch.arange(8.0)) for kind in (WEIGHT, "exp_avg")
    ]
    counters = {"parameters": {"w": {"step": 3}}, "groups": [{"weight_decay": 0.1}]}
    state = SavedState(
        fragments=lambda: iter(pieces), counters=lambda: counters, parts={"hooks.ema": {"w": torch.ones(2)}}
    )
    model = SavedModel(
        weights=lambda: iter([("w", torch.arange(8.0))]), config=None, generation_config=None, tokenizer=None
    )
    progress = PROGRESS | {"sources": {}, "final": False}
    write_step(ScriptRanks(), step, StepContents(state=state, model=model, progress=progress), keep_last=None)
    load_step(ScriptRanks(), step)
    return step


def files(step: Path) -> list[str]:
    return sorted(path.relative_to(step).as_posix() for path in step.rglob("*") if path.is_file())


FILES = [
    "manifest.json", "model/model.safetensors", "progress.json", "state/parts.json", "state/parts.safetensors",
    "state/rank-00000.json", "state/rank-00000.safetensors",
]  # fmt: skip


def refused(step: Path, name: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        load_step(ScriptRanks(), step)
    assert Path(name).name in str(raised.value)


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_names_its_file(whole, tmp_path, name) -> None:
    assert files(whole) == FILES
    content = (whole / name).read_bytes()
    step = tmp_path / "step-000003"
    shutil.copytree(whole, step)
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place % 8)
        (step / name).write_bytes(flipped)
        if name == "manifest.json":  # a flip there may name a file that it spoils the record of
            with pytest.raises(CheckpointError):
                load_step(ScriptRanks(), step)
        else:
            refused(step, name)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_or_cut_off_is_named(whole, tmp_path, name) -> None:
    step = tmp_path / "step-000003"
    shutil.copytree(whole, step)
    content = (step / name).read_bytes()
    (step / name).write_bytes(content[: len(content) // 2])
    refused(step, name)
    (step / name).unlink()
    refused(step, name)


def test_two_files_that_changed_places_are_named(whole, tmp_path) -> None:
    step = tmp_path / "step-000003"
    shutil.copytree(whole, step)
    one, other = step / "state" / "rank-00000.safetensors", step / "state" / "parts.safetensors"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    refused(step, one.name)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secrets", "state/../../x", "", "state\\..\\x"])
def test_a_manifest_that_names_a_path_outside_is_refused(whole, tmp_path, path) -> None:
    step = tmp_path / "step-000003"
    shutil.copytree(whole, step)
    said = json.loads((step / "manifest.json").read_text())
    said["files"][path] = {"bytes": 1, "hash": "0" * 32}
    (step / "manifest.json").write_text(json.dumps(said))
    refused(step, "manifest.json")


KEYS = st.sampled_from(["format", "files", "bytes", "hash", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from(["ike-checkpoint-1", "x"])
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12)


@given(JSON)
@settings(max_examples=300)
def test_no_manifest_raises_anything_but_a_checkpoint_error(tmp_path_factory, said) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzzed"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(said))
    try:
        Manifest.read(folder).check_sizes(folder)
    except CheckpointError:
        return
