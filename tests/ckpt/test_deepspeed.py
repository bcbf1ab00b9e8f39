"""`save_checkpoint` beside DeepSpeed, in a script that knows nothing else of ike."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from safetensors.torch import load_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed, which ike-ckpt does not"),
]

SCRIPT = """
import os
os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": str(rank)}
import deepspeed, deepspeed.ops
from safetensors.torch import save_file
from torch import nn
from ike_ckpt import create_fileid, save_checkpoint
from ike_core.errors import CheckpointError

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # would be compiled, and is never called
deepspeed.init_distributed(dist_init_required=False)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
if rank == 0:
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "expected.safetensors")
zero = {"stage": 3, "stage3_param_persistence_threshold": 0}  # else parameters this small stay whole
config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}
engine, *_ = deepspeed.initialize(model=model, config=config, dist_init_required=False)
file_id = create_fileid(root=folder / "runs")
try:
    save_checkpoint(engine, file_id=file_id, root=folder / "runs")
except CheckpointError as error:
    said["in pieces"] = str(error)
with deepspeed.zero.GatheredParameters(list(engine.parameters())):
    said["path"] = str(save_checkpoint(engine, file_id=file_id, root=folder / "runs"))
"""


def test_under_zero3_pieces_are_refused_on_every_rank_and_gathered_parameters_are_saved(run_ranks, tmp_path) -> None:
    said = run_ranks(SCRIPT, 2, tmp_path)
    assert ["0.weight has no values" in one["in pieces"] for one in said] == [True, True]
    written = load_file(Path(said[0]["path"], "model", "model.safetensors"))
    expected = load_file(tmp_path / "expected.safetensors")
    assert written.keys() == expected.keys()  # the engine's own prefix is off
    assert all(tensor.equal(expected[name]) for name, tensor in written.items())
