"""One rank of a launched run: `python -m ike_core.worker train|infer LAYER... [key=value...]`.

Ends with the exit code of the error's kind, and leaves what happened in the file that the launcher named.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path

from ike_core.config import load_config
from ike_core.door import runtime
from ike_core.errors import IkeError
from ike_core.inference import InferencePipeline
from ike_core.interruption import Interrupted, end_by, raise_when_told
from ike_core.training import TrainingPipeline

FAILURE_FILE = "IKE_FAILURE_FILE"
"""The launcher's: where this rank says why it failed."""


def main(arguments: list[str]) -> int:
    """0, or the exit code of the error's kind. Told to stop, it does not return: the process ends by the signal."""
    try:
        raise_when_told()
        code = _run(arguments)
        if not code:
            runtime("torch_world:leave")()
    except Interrupted as interrupted:
        end_by(interrupted.signum)
    return code


def _run(arguments: list[str]) -> int:
    command, *layers = arguments
    pipeline: TrainingPipeline | InferencePipeline | None = None
    try:
        config = load_config(*layers)
        pipeline = TrainingPipeline(config=config) if command == "train" else InferencePipeline(config=config)
        pipeline.run()
    except (Exception, SystemExit) as error:  # noqa: BLE001  the process ends here, in a way that the launcher understands
        step = pipeline.progress.step if isinstance(pipeline, TrainingPipeline) else None
        _report(error, step)
        return error.exit_code if isinstance(error, IkeError) else 1
    return 0


def _report(error: BaseException, step: int | None) -> None:
    trace = traceback.format_exc()
    print(trace, file=sys.stderr, flush=True)
    file = os.environ.get(FAILURE_FILE)
    if file:
        failure = {
            "rank": int(os.environ.get("RANK", "0")),
            "step": step,
            "kind": type(error).__name__,
            "message": str(error),
            "traceback": trace,
            "time": time.time(),
        }
        Path(file).write_text(json.dumps(failure))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # No interpreter's end: a rank that failed must not wait for the others, who are stuck in the middle of a step, and
    # one that is done must not be aborted by threads that gloo and DeepSpeed have left.
    os._exit(code)
