"""What a person watches: a progress bar on a terminal, plain lines everywhere else."""

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

import attrs

from ike_core.interfaces import RunFacts

if TYPE_CHECKING:
    from rich.progress import TaskID

PROGRESS_FILE_VARIABLE = "IKE_PROGRESS_FILE"
"""Set by ike-launch for rank 0: the launcher owns the terminal, and reads from this file what its bar should show."""
NOT_SHOWN = {"epoch", "examples", "tokens", "supervised_tokens", "seconds", "peak_memory_bytes"}  # log.jsonl has them


def is_terminal() -> bool:
    """Whether stdout is a screen that a bar can be redrawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def describe(step: int, steps: int, values: Mapping[str, Any]) -> str:
    """One line for people: `step 20/100  loss 2.31  grad_norm 1.204  learning_rate 1e-05  153 tokens/s`."""
    shown = [_shown(name, value) for name, value in values.items() if name not in NOT_SHOWN]
    return "  ".join([f"step {step}/{steps}", *shown])


def _shown(name: str, value: Any) -> str:
    """Short enough that a step with an evaluation fits into 100 columns."""
    if name == "tokens_per_second":
        return f"{value:,.0f} tokens/s"
    digits = 3 if name in ("learning_rate", "grad_norm") else 4
    return f"{name} {value:.{digits}g}" if isinstance(value, float) else f"{name} {value}"


class ProgressBar:
    """Drawn at the bottom of the screen, below the lines that are printed through it; `close` leaves it standing."""

    def __init__(self, title: str) -> None:
        # 60 ms, paid only by who draws.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )
        self._title = title
        self._task: TaskID | None = None
        self._known: dict[str, Any] = {}
        self._progress.start()

    def update(self, values: Mapping[str, Any]) -> None:
        """`step`, `steps` and what else is known, under the log's names; what is left out stays as it was shown."""
        self._known.update(values)
        completed, total, numbers = self._known["step"], self._known["steps"], _numbers(self._known)
        if self._task is None:  # not before: a run that starts at step 500 did not do those in no time
            self._task = self._progress.add_task(self._title, total=total, completed=completed, numbers=numbers)
        self._progress.update(self._task, total=total, completed=completed, numbers=numbers)

    def print(self, line: str) -> None:
        """A line above the bar, as it is."""
        self._console.print(line, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


def _numbers(known: Mapping[str, Any]) -> str:
    """`loss 2.31  valid/holdout/loss 2.5  153 tokens/s`"""
    names = ["loss", *filter(_is_eval_loss, known), "tokens_per_second"]
    return "  ".join(_shown(name, known[name]) for name in names if name in known)


def _is_eval_loss(name: str) -> bool:
    return name.startswith("valid/") and name.endswith("/loss")


@attrs.define
class ConsoleTracker:
    """The run on stdout: metric lines above a progress bar on a terminal, elsewhere the lines alone.

    Under ike-launch nothing is drawn: the bar's numbers go to the launcher's file, one JSON object a line.
    """

    _steps: int = attrs.field(init=False, default=0)
    _bar: ProgressBar | None = attrs.field(init=False, default=None)
    _progress: TextIO | None = attrs.field(init=False, default=None)

    def start(self, run: RunFacts) -> None:
        self._steps = run.steps
        if file := os.environ.get(PROGRESS_FILE_VARIABLE):
            self._progress = open(file, "a", buffering=1, encoding="utf-8")  # noqa: SIM115  # closed by finish()
        elif is_terminal():
            self._bar = ProgressBar(run.name)

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        self.say(describe(step, self._steps, values))
        self._draw({"step": step, "steps": self._steps, **values})

    def say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.print(line)
        else:
            print(line, flush=True)

    def advance(self, step: int) -> None:
        self._draw({"step": step, "steps": self._steps})

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._progress is not None:
            self._progress.close()

    def _draw(self, values: Mapping[str, Any]) -> None:
        if self._bar is not None:
            self._bar.update(values)
        if self._progress is not None:
            self._progress.write(json.dumps(values) + "\n")
