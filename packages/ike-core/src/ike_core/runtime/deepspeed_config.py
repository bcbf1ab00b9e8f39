"""DeepSpeed's settings, written whole: what ike owns, and what `[engine.raw]` may add.

The top level of DeepSpeed's own reader takes typos in silence, so the names it knows stand here (0.18 to 0.19.8).
"""

import difflib
from collections.abc import Mapping
from typing import Any

from ike_core.errors import ConfigError

OWNED = {
    "train_batch_size": "batch.examples_per_step",
    "train_micro_batch_size_per_gpu": "batch.tokens_per_device",
    "gradient_accumulation_steps": "batch.tokens_per_device",
    "managed_gradient_accumulation": "batch.tokens_per_device",
    "gradient_clipping": "engine.clip_norm",
    "bf16": "engine.precision",
    "fp16": "engine.precision",
    "bfloat16": "engine.precision",
    "torch_autocast": "engine.precision",
    "optimizer": "optimizer",
    "scheduler": "schedule",
    "steps_per_print": "cadence.log",
    "prescale_gradients": "the loop's one division",
    "gradient_predivide_factor": "the loop's one division",
    "gradient_allreduce_op": "the loop's one division",
    "tensorboard": "trackers",
    "wandb": "trackers",
    "csv_monitor": "trackers",
    "comet": "trackers",
    "dataloader_drop_last": "batch.examples_per_step",
}
"""Keys that ike writes itself, and the key of ike's that says the same."""

OWNED_IN_ZERO = {
    "stage": "engine.zero_stage",
    "offload_optimizer": "engine.zero_stage (offload is not built yet)",
    "offload_param": "engine.zero_stage (offload is not built yet)",
}

REMOVED = (
    "nebula compression_training amp quantize_training sparse_gradients eigenvalue sparse_attention elasticity "
    "graph_harvesting curriculum_learning progressive_layer_drop"
).split()
"""Blocks that DeepSpeed 0.19 refuses."""

KNOWN = (
    "activation_checkpointing aio checkpoint comms_logger communication_data_type compile data_efficiency data_types "
    "disable_allgather disable_python_gc dump_state flops_profiler hybrid_engine log_level memory_breakdown pipeline "
    "seq_parallel_communication_data_type tensor_parallel timers use_data_before_expert_parallelism vocabulary_size "
    "wall_clock_breakdown weight_quantization zero_allow_untested_optimizer zero_force_ds_cpu_optimizer "
    "zero_optimization"
).split()


def deepspeed_config(*, zero_stage: int, precision: str, clip_norm: float, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The whole dictionary for `deepspeed.initialize`; `raw` has passed `refuse`."""
    raw_zero = raw.get("zero_optimization", {})
    return {
        "zero_allow_untested_optimizer": True,  # fused torch AdamW is one; DeepSpeed's own needs a compiler
        "zero_force_ds_cpu_optimizer": False,
        **raw,
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed wants a count; ike cuts micro-batches by their tokens
        "gradient_accumulation_steps": 1,  # ike says itself which micro-batch is the last
        "gradient_clipping": clip_norm,  # DeepSpeed 0.19.8 clips at 1.0 when the key is absent
        "steps_per_print": 10**9,
        "bf16": {"enabled": precision == "bf16"},
        **({"data_types": {"grad_accum_dtype": "fp32"}} if precision == "bf16" and "data_types" not in raw else {}),
        "zero_optimization": {**raw_zero, "stage": zero_stage},
    }


def refuse(raw: Mapping[str, Any]) -> None:
    """ConfigError for a raw key that ike owns, that DeepSpeed has removed, or that nobody reads."""
    wrong = []
    zero = raw.get("zero_optimization", {})
    if not isinstance(zero, Mapping):
        raise ConfigError("engine.raw.zero_optimization must be a table")
    for key in raw:
        if key in OWNED:
            wrong.append(f"engine.raw.{key} is ike's own: set {OWNED[key]}")
        elif key in REMOVED:
            wrong.append(f"engine.raw.{key} was removed from DeepSpeed, which refuses it; leave it out")
        elif key not in KNOWN:
            near = difflib.get_close_matches(key, [*KNOWN, *OWNED], n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it knows {', '.join(KNOWN)}"
            wrong.append(f"engine.raw.{key} is no setting of DeepSpeed's{hint}")
    for key in zero:
        if key in OWNED_IN_ZERO:
            wrong.append(f"engine.raw.zero_optimization.{key} is ike's own: set {OWNED_IN_ZERO[key]}")
    if wrong:
        raise ConfigError("\n".join(wrong))
