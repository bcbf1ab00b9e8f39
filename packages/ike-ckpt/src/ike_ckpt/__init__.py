"""Safetensors checkpoints under an id that every rank shares."""

from ike_ckpt.checkpoint import save_checkpoint
from ike_ckpt.fileid import create_fileid
from ike_ckpt.store import SafetensorsStore
from ike_ckpt.weights import WrittenWeights, read_weights, write_weights

__all__ = ["SafetensorsStore", "WrittenWeights", "create_fileid", "read_weights", "save_checkpoint", "write_weights"]
