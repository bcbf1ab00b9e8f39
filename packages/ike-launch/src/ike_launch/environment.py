"""The environment that all ranks of a job share; torch's agent adds what differs between them."""

import os
import sys
from collections.abc import Mapping

from ike_launch.job import Job


def rank_environment(job: Job, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the user has set stays; CUDA_VISIBLE_DEVICES is never written, nor LOCAL_SIZE.

    (With LOCAL_SIZE equal to the world's size DeepSpeed takes a shared-memory road that only its own launcher tends.)
    """
    ours = {
        # Ranks that each take every core are slower together than one alone.
        "OMP_NUM_THREADS": str(max(1, _cores() // job.ranks)),
        # A line is in the rank's file, and so on the screen, when it is printed.
        "PYTHONUNBUFFERED": "1",
    }
    channels = {
        "IKE_RUN_FILE": str(job.run_file),
        "IKE_PROGRESS_FILE": str(job.progress_file),
        "IKE_SAVED_FILE": str(job.saved_file),
    }
    return {**ours, **base, **channels}


def _cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
