"""Under ZeRO-3 parameters are dealt out as they are made, and the weights still come whole from the files."""

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs ike-core[deepspeed]"),
]

LOAD = """
import sys
import torch
import torch._dynamo  # can't be imported for the first time inside zero.Init, which wraps Tensor.__new__
from ike_core.interfaces import BuildContext
from ike_core.runtime.deepspeed_engine import DeepSpeed
from ike_core.runtime.model import PretrainedModel
from safetensors.torch import save_file

path, out = sys.argv[1:]
engine = DeepSpeed(zero_stage=3)
world = engine.start()
context = BuildContext(device=world.device, dtype=torch.float32, attention="auto", vocabulary=None, world=world, seed=0)
with engine.building(precision="fp32"):
    model = PretrainedModel(path).build(context)
    import deepspeed
    assert all(parameter.numel() == 0 for parameter in model.parameters())  # every one is dealt out
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
save_file(weights, f"{out}/{world.rank}.safetensors")
"""


def load(path: Path, out: Path) -> list[subprocess.CompletedProcess[str]]:
    """Two ranks, on a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, str(path), str(out)], stderr=subprocess.PIPE, text=True,
            env={**shared, "RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"},
        )
        for rank in ("0", "1")
    ]  # fmt: skip
    try:
        first = children[0].communicate(timeout=200)[1]
        if children[0].returncode:
            children[1].kill()  # it waits for the one that failed; a launcher would end it
        said = [first, children[1].communicate(timeout=100)[1]]
    finally:
        for child in children:
            child.kill()
    return [
        subprocess.CompletedProcess([], child.returncode, "", error)
        for child, error in zip(children, said, strict=True)
    ]


def test_a_folder_is_read_into_pieces(llama_folder, tmp_path) -> None:
    ended = load(llama_folder, tmp_path)
    assert [child.returncode for child in ended] == [0, 0], ended[0].stderr
    files = load_file(llama_folder / "model.safetensors")
    for rank in (0, 1):
        read = load_file(tmp_path / f"{rank}.safetensors")
        assert read.keys() == files.keys()
        assert all(tensor.equal(files[name]) for name, tensor in read.items())


def test_a_gguf_file_is_read_into_pieces(tiny_llama, write_gguf, tmp_path) -> None:
    weights = write_gguf(tmp_path / "tiny.gguf", tiny_llama, quantized=True)
    ended = load(tmp_path / "tiny.gguf", tmp_path)
    assert [child.returncode for child in ended] == [0, 0], ended[0].stderr
    for rank in (0, 1):
        read = load_file(tmp_path / f"{rank}.safetensors")
        assert read.keys() == weights.keys()
        assert all(tensor.equal(weights[name]) for name, tensor in read.items())


def test_a_shape_that_does_not_fit_is_an_error_that_names_it(llama_folder, tmp_path) -> None:
    path = llama_folder / "model.safetensors"
    weights = load_file(path)
    path.unlink()
    save_file({**weights, "model.norm.weight": weights["model.norm.weight"][:-1].clone()}, path, {"format": "pt"})
    first, _ = load(llama_folder, tmp_path)
    assert first.returncode == 1
    assert "ConfigError" in first.stderr
    assert "size mismatch for model.norm.weight" in first.stderr
