"""A job from its start to its exit code: what `train`, `infer` and `run` have in common."""

import sys
from collections.abc import Callable
from importlib.util import find_spec

from ike_core.errors import LaunchError
from ike_launch.agent_process import AgentProcess
from ike_launch.environment import rank_environment
from ike_launch.job import Job
from ike_launch.ports import check_port
from ike_launch.screen import new_screen
from ike_launch.supervisor import Outcome, Supervisor


def require_torch() -> None:
    """The machine that starts ranks needs torch; the one that only reads settings does not."""
    if find_spec("torch") is None:
        raise LaunchError(
            'ranks are started by torch\'s agent, and torch is not installed: pip install "ike-launch[local]" '
            "(--dry-run and config work without)"
        )


def launch(job: Job, *, title: str, check: Callable[[], None] = lambda: None) -> Outcome:
    """Starts the ranks once `check` has returned, and sees them to their end; a failure is reported on stderr.

    `check` runs while the agent imports torch; what it raises ends the agent before any rank has started.
    """
    check_port(job.host, job.port)
    with AgentProcess.start(job, rank_environment(job)) as agent:
        check()
        outcome = Supervisor.of(agent, new_screen(title)).run()
    if outcome.failure is not None:
        folder = outcome.run_folder or outcome.logs
        outcome.failure.write(folder / "failure.json", ranks=job.ranks, logs=outcome.logs)
        print(f"ike-launch: {outcome.failure.report(job.ranks, outcome.logs)}", file=sys.stderr)
    if outcome.interruption is not None:
        print(f"ike-launch: {outcome.interruption.report()}", file=sys.stderr)
    return outcome
