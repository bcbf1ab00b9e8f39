"""The training loop: a step, what it reports, and what is due after it."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_core.assembly import TrainingParts, assemble_training
from ike_core.cadence import Due
from ike_core.config import Config
from ike_core.context import Context
from ike_core.door import runtime
from ike_core.errors import TrainingError
from ike_core.examples import AnyExample
from ike_core.feed import CutStep, MicroBatch, Step
from ike_core.interfaces import StepObjective, StepReport
from ike_core.misuse import check_config, no_weight, step_report
from ike_core.not_finite import tell
from ike_core.outputs import as_output
from ike_core.progress import Progress, added
from ike_core.randomness import key, mix
from ike_core.resumption import save_step
from ike_core.step_output import StepOutput
from ike_core.tally import Tally, read


@attrs.define(eq=False)
class TrainingPipeline:
    """A run: what the four arguments leave open comes from `config`, by default the command line's layers.

    Nothing is built before `run()`, `file_id` or `parts` is asked for.
    """

    model: Any = None
    """A module, a `build_model()` callable (for ZeRO-3 beyond one device's memory), or None: `[model]` says it."""
    train_forward_step_fn: Any = None
    """A plain function (model, samples), an objective (model, batch, context), or None: `[objective]` says it."""
    data_processor_classes: Any = None
    """Dataset name -> class or instance, or a sequence of one for data.train; a class is built from its table."""
    optimizer: Any = None
    """A torch optimizer over the model's parameters (its lr is the peak), a callable(module), a part, or None."""
    config: Config | None = attrs.field(default=None, kw_only=True, validator=check_config)
    """What `load_config` gives."""
    evaluation_step_fn: Any = attrs.field(default=None, kw_only=True)
    """As train_forward_step_fn, for data.valid and the holdout."""
    collate_fn: Callable[..., Any] | None = attrs.field(default=None, kw_only=True)
    """(examples, vocabulary) -> a mapping of tensors, or a Batch."""
    sources: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    """'train', or the name of a `[data.valid]` -> an object with `__len__` and `__getitem__`, in the place of the
    table's files: its records go through the processor, examples are taken as they are."""
    hooks: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    """Name -> hook; after those of `[hooks]`."""
    cut: CutStep | None = attrs.field(default=None, kw_only=True)
    """A seam for tests: how a step's examples are dealt."""
    progress: Progress = attrs.field(factory=Progress, init=False)
    _has_begun: bool = attrs.field(default=False, init=False)
    _parts: TrainingParts | None = attrs.field(default=None, init=False)
    _clock: float = attrs.field(default=0.0, init=False)
    _tokens_logged: int = attrs.field(default=0, init=False)

    @property
    def parts(self) -> TrainingParts:
        """Collective when first asked for: everything the run is made of."""
        if self._parts is None:
            self._parts = assemble_training(self)
            self.progress = self._parts.start
            self._tokens_logged = self.progress.tokens
        return self._parts

    @property
    def file_id(self) -> str:
        """The run's id: made by rank 0, received by every rank."""
        return self.parts.file_id

    def run(self) -> float:
        """Collective: trains to the end; the last step's loss."""
        if self._has_begun:
            raise TrainingError("this pipeline has run; build another one for another run")
        self._has_begun = True
        parts = self.parts
        try:
            return self._run(parts)
        finally:
            parts.trackers.finish()
            parts.setup.opened.release()

    def _run(self, parts: TrainingParts) -> float:
        parts.hooks.before_training(parts.engine, self.context(self.progress.step))
        self._clock = time.perf_counter()
        loss = math.nan
        if self.progress.step == 0:
            self._record(None, parts.cadence.due(0, last=False))
        for step in parts.feed.steps(self.progress.step, parts.steps):
            report = step_report(self, self.train_step(step))
            self.progress = self._after(step, report)
            parts.hooks.after_update(report, self.context(step.step))
            if not report.update.applied:
                tell(parts, step, report, skipped=self.progress.skipped)
            loss = self._record(report, parts.cadence.due(report.step, last=report.step == parts.steps))
        if self.progress.sources:
            parts.trackers.say(self.progress.mix())
        return loss

    # -- one step -------------------------------------------------------------------------------------------------

    def train_step(self, step: Step) -> StepReport:
        """Collective: one update. Override it to do something else with a step; the pieces below are its words."""
        return self.update(step, self.accumulate(step, self.parts.objective))

    def accumulate(self, step: Step, objective: Callable[..., Any]) -> Tally:
        """Collective: forward and backward over the step's micro-batches, by one objective."""
        if isinstance(objective, StepObjective):
            return self._accumulate_coupled(step, objective)
        engine, tally = self.parts.engine, Tally()
        placed = engine.place(step.micro_batches[0].batch)
        for number, micro in enumerate(step.micro_batches):
            self._begin(step, number)
            batch = placed
            if number + 1 < len(step.micro_batches):  # copied while this one computes
                placed = engine.place(step.micro_batches[number + 1].batch)
            returned = objective(engine.model, batch, self.context(step.step, micro, number))
            output = as_output(returned, objective, learns=True)
            if not micro.is_filler:
                tally.add(output)
            engine.accumulate(self._undivided(output, step, micro))
        return tally

    def update(self, step: Step, tally: Tally) -> StepReport:
        """Collective: clip, schedule, optimizer; what the step did."""
        parts = self.parts
        parts.hooks.before_update(parts.engine, self.context(step.step))
        factors = {name: schedule(step.step, parts.steps) for name, schedule in parts.schedules.items()}
        return StepReport(
            step=step.step + 1,
            epoch=step.epoch,
            update=parts.engine.update(factors),
            loss=tally.terms,
            metrics=tally.metrics,
            weights=step.weights,
            examples=[example for micro in step.micro_batches for example in micro.examples],
        )

    def context(self, step: int, micro: MicroBatch | None = None, number: int = 0) -> Context:
        """What an objective, or a hook, knows of where it stands."""
        return self.parts.context(step, micro.examples if micro else (), number, training=True)

    def _undivided(self, output: StepOutput, step: Step, micro: MicroBatch) -> Any:
        """The one division: each term by its weight of the whole step; the engine averages over ranks, so times those.

        Filler's outputs are dropped: where a collate can't make a row without labels, they count 0 times.
        """
        share = 0.0 if micro.is_filler else float(self.parts.world.replicas)
        loss: Any = 0.0
        for coefficient, mean in output.terms:
            weight = step.weights.get(mean.per)
            if not weight:
                raise no_weight(mean, step)
            loss = loss + mean.total * (coefficient * share / weight)
        return loss

    def _accumulate_coupled(self, step: Step, objective: StepObjective) -> Tally:
        parts, tally = self.parts, Tally()
        output = runtime("coupled_step:coupled_step")(
            parts.engine,
            objective,
            step.micro_batches,
            step.examples,
            step.weights,
            context_of=lambda micro, number: self.context(step.step, micro, number),
            begin=lambda number: self._begin(step, number),
        )
        if parts.world.is_first:  # the loss is over all examples on every rank: one of them counts it
            tally.add(output)
        return tally

    def _begin(self, step: Step, number: int) -> None:
        parts = self.parts
        seed = mix(parts.seed, step.step, number, parts.world.rank, key("dropout"))
        parts.engine.begin(is_last=number + 1 == len(step.micro_batches), seed=seed)

    # -- after a step ---------------------------------------------------------------------------------------------

    def _after(self, step: Step, report: StepReport) -> Progress:
        return Progress(
            step=report.step,
            epoch=report.epoch,
            examples=self.progress.examples + step.size,
            tokens=self.progress.tokens + step.tokens,
            supervised_tokens=self.progress.supervised_tokens + step.weights.get("tokens", 0.0),
            skipped=self.progress.skipped + (not report.update.applied),
            sources=added(self.progress.sources, step.sources),
        )

    def _record(self, report: StepReport | None, due: Due) -> float:
        """Collective where anything is due: evaluates, logs and saves; the step's loss, or nan where no log is due."""
        values: dict[str, Any] = {}
        if report is not None and due.log:
            values |= self._summary(report)
        values |= self._evaluate(due)
        self.parts.trackers.log(self.progress.step, values)
        if due.save:
            self.save_checkpoint(final=self.progress.step == self.parts.steps)
        return float(values.get("loss", math.nan))

    def _summary(self, report: StepReport) -> dict[str, Any]:
        values: dict[str, Any] = read(report.loss, report.metrics, report.weights, self.parts.world)
        now = time.perf_counter()
        seconds, tokens = now - self._clock, self.progress.tokens - self._tokens_logged
        self._clock, self._tokens_logged = now, self.progress.tokens
        return values | {
            "grad_norm": float(report.update.grad_norm),
            "learning_rate": report.update.learning_rate,
            "epoch": report.epoch,
            **self.progress.values(),
            "tokens_per_second": tokens / seconds,
            "seconds": seconds,
            "peak_memory_bytes": self.parts.peak_memory(),
        }

    def _evaluate(self, due: Due) -> dict[str, float]:
        values: dict[str, float] = {}
        for evaluation in self.parts.due_evaluations(self.progress.step, due):
            found = evaluation.run(self.parts.engine, self._evaluation_context)
            values |= {f"{evaluation.name}/{name}": value for name, value in found.items()}
        if values:
            self.parts.hooks.after_evaluate(values, self.parts.context(self.progress.step, (), 0, training=False))
        return values

    def _evaluation_context(self, examples: tuple[AnyExample, ...], number: int) -> Context:
        return self.parts.context(self.progress.step, examples, number, training=False)

    def save_checkpoint(self, *, final: bool = False) -> Path | None:
        """Collective: this step's folder, or None where the run has no checkpoint part."""
        folder = save_step(self.parts, self.progress, final=final)
        if folder is not None:
            self.parts.hooks.after_save(folder, self.context(self.progress.step))
        return folder
