"""What DeepSpeed (0.19.8) holds on to when nobody has its engine any more, let go.

Without, a second run in the same process finds the first one's masters and moments still there, and under ZeRO-3 its
buckets: 2 GB in float32 with DeepSpeed's own sizes.
"""

import functools
import inspect
import weakref
from typing import Any


def release_with(owner: object, theirs: Any) -> None:
    """When `owner` is gone, so is the DeepSpeed engine, at the next collection of garbage."""
    weakref.finalize(owner, _release, theirs).atexit = False


def _release(theirs: Any) -> None:
    theirs.destroy()  # takes its hooks out of autograd's graph, where Python's gc can't see that they close a circle
    from deepspeed.runtime.zero import parameter_offload
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator

    under_way = parameter_offload.FWD_MODULE_STACK  # a list of the module's that keeps every ZeRO-3 model
    under_way[:] = [module for module in under_way if module is not theirs.module]
    for method in filter(inspect.isfunction, vars(PartitionedParameterCoordinator).values()):
        for inner in inspect.getclosurevars(method).nonlocals.values():
            if isinstance(inner, functools._lru_cache_wrapper):  # of a method: it keeps every coordinator
                inner.cache_clear()
