"""What a training run is made of, put together in the one order that works.

The ranks meet; rank 0 names the run and every rank receives the name, before anything else is built; the model inside
the engine's context; data, which wants to know the model's positions; the engine; and last what rests on all of these.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from ike_core.batch import Vocabulary
from ike_core.cadence import Cadence, Due
from ike_core.config import Config, load_config
from ike_core.config.sections import EngineSection, TrainSection
from ike_core.context import Context
from ike_core.data_files import check_files
from ike_core.datasets import DatasetBuilder, Datasets
from ike_core.door import runtime
from ike_core.evaluation import Evaluation
from ike_core.evaluations import EvaluationBuilder
from ike_core.examples import AnyExample
from ike_core.feed import Feed
from ike_core.frozen_models import FrozenModels, require_frozen
from ike_core.hooks import Hooks
from ike_core.interfaces import Dataset, Engine, SavedModel, Stateful, StepObjective, World
from ike_core.mixed_dataset import MixedDataset
from ike_core.mixing import Mixture
from ike_core.models import ModelBuilder, schedules
from ike_core.objectives import Forward, ObjectiveBuilder, forward_of, two_examples
from ike_core.ordering import Ordering
from ike_core.padded_fit import check_padded
from ike_core.precomputing import precompute
from ike_core.progress import Progress
from ike_core.resumption import stateful_parts, take_up
from ike_core.run_setup import RunSetup, set_up
from ike_core.self_check import check_cut
from ike_core.shares import order_of
from ike_core.spoken import name_of
from ike_core.trackers import Trackers
from ike_core.user_code import save_user_code

if TYPE_CHECKING:
    from ike_core.training import TrainingPipeline


@attrs.frozen(kw_only=True)
class TrainingParts:
    """A run, built."""

    setup: RunSetup
    engine: Engine
    objective: Any
    """(model, batch, context), the user's or their function as one; or a StepObjective."""
    feed: Feed
    steps: int
    cadence: Cadence
    schedules: Mapping[str, Any]
    evaluations: tuple[Evaluation, ...]
    hooks: Hooks
    frozen: Mapping[str, Any]
    vocabulary: Vocabulary
    saved_model: SavedModel
    start: Progress
    """How far the run was when it was taken up; the start of a new one."""

    @property
    def world(self) -> World:
        return self.setup.world

    @property
    def config(self) -> Config:
        return self.setup.config

    @property
    def trackers(self) -> Trackers:
        return self.setup.trackers

    @property
    def file_id(self) -> str:
        return self.setup.file_id

    @property
    def is_coupled(self) -> bool:
        """Whether the loss couples the examples of a step."""
        return isinstance(self.objective, StepObjective)

    @property
    def stateful(self) -> Mapping[str, Stateful]:
        """What outlives a step, by its table."""
        return stateful_parts(self.objective, self.hooks.hooks)

    @property
    def forward(self) -> Forward:
        """The objective as a callable that always gives a StepOutput."""
        return forward_of(self.objective)

    @property
    def seed(self) -> int:
        return self.config.run.seed

    @property
    def policy(self) -> EngineSection:
        """What is done about a step that is not finite."""
        return self.config.engine

    def context(self, step: int, examples: tuple[AnyExample, ...], number: int, *, training: bool) -> Context:
        device = self.world.device
        return Context(
            step=step,
            steps=self.steps,
            epoch=self.feed.ordering.epoch(step),
            training=training,
            seed=self.seed,
            rank=self.world.rank,
            micro_batch=number,
            frozen=self.frozen,
            vocabulary=self.vocabulary,
            examples=examples,
            new_generator=partial(runtime("seeds:new_generator"), device),
        )

    def due_evaluations(self, step: int, due: Due) -> list[Evaluation]:
        """At the start and at the end all; between, each at its own cadence."""
        ends = step in (0, self.steps)
        return [
            evaluation
            for evaluation in self.evaluations
            if ends or (due.evaluate if evaluation.every is None else self.cadence.falls(evaluation.every, step))
        ]

    def peak_memory(self) -> int:
        return int(runtime("modules:peak_memory")(self.world.device))


def assemble_training(pipeline: "TrainingPipeline") -> TrainingParts:
    """Collective: everything, or an error that every rank raises."""
    config = pipeline.config if pipeline.config is not None else load_config()
    check_files("train", config)
    setup = set_up(config, model=pipeline.model, given=_given(pipeline), trains=True)
    objectives = ObjectiveBuilder(config, setup.tokenizer, pipeline.train_forward_step_fn, pipeline.collate_fn)
    evaluations = EvaluationBuilder(config, setup.tokenizer, pipeline.evaluation_step_fn)
    objective = objectives.objective()
    require_frozen((objective, *evaluations.asked()), config.frozen)
    collate = objectives.collate(objective)

    models = ModelBuilder(
        config=config,
        engine_part=setup.engine_part,
        world=setup.world,
        vocabulary=setup.vocabulary,
        trains=True,
        say=setup.trackers.say,
    )
    module = models.model(pipeline.model)
    datasets = _datasets(pipeline, setup, module, evaluations)
    vocabulary = setup.vocabulary or runtime("modules:vocabulary")(module)
    frozen = FrozenModels(models.frozen(module, given=pipeline.model, collate=collate))
    engine = models.engine(module, collate.prepare(module), pipeline.optimizer)
    frozen |= models.adapter_off(module, engine)

    collate = objectives.checked(collate, objective, engine, frozen, datasets.train, vocabulary, setup.trackers.say)
    batches = objectives.batches(collate, objective, vocabulary, datasets.train, setup.world, pipeline.cut)
    check_padded(datasets.by_name, batches.ceiling, setup.world)
    batches = precompute(setup, frozen, datasets, batches, engine.place)
    ordering, steps = _order(config, datasets.train)
    hooks = Hooks.of(config.hooks, pipeline.hooks, tokenizer=setup.tokenizer)
    parts = TrainingParts(
        setup=setup,
        engine=engine,
        objective=objective,
        feed=Feed(
            datasets.train,
            ordering,
            batches,
            widen=objective.widen if isinstance(objective, StepObjective) else None,
            source_of=datasets.train.source_of if isinstance(datasets.train, MixedDataset) else None,
        ),
        steps=steps,
        cadence=Cadence(config.cadence, ordering.steps_per_epoch),
        schedules=schedules(config),
        evaluations=evaluations.build(
            objective, datasets, batches, vocabulary, positions=runtime("modules:positions")(module)
        ),
        hooks=hooks,
        frozen=frozen,
        vocabulary=vocabulary,
        saved_model=models.saved(module, engine, setup.tokenizer),
        start=take_up(setup, engine, stateful_parts(objective, hooks.hooks)),
    )
    _check(parts)
    save_user_code(setup)
    setup.start_trackers(parts.steps)
    return parts


def _given(pipeline: "TrainingPipeline") -> Sequence[str]:
    """What was given in Python in place of settings, by name: as much as can be said of it."""
    given = (pipeline.model, pipeline.train_forward_step_fn, pipeline.collate_fn, pipeline.optimizer)
    return ["" if part is None else name_of(part) for part in given]


def _order(config: Config, dataset: Dataset) -> tuple[Ordering | Mixture, int]:
    """Which examples make each step, and how many steps the run has."""
    section = config.data.train or TrainSection()  # absent where Python gives its rows
    examples_per_step, seed = config.batch.examples_per_step, config.run.seed
    ordering = order_of(section, dataset, examples_per_step=examples_per_step, seed=seed)
    steps = config.length.steps or ordering.steps(epochs=config.length.epochs or 1.0)
    if isinstance(ordering, Mixture):
        ordering.require(steps)
    return ordering, steps


def _datasets(pipeline: "TrainingPipeline", setup: RunSetup, module: Any, evaluations: EvaluationBuilder) -> Datasets:
    builder = DatasetBuilder(
        config=setup.config,
        tokenizer=setup.tokenizer,
        given=pipeline.data_processor_classes,
        sources=pipeline.sources,
        positions=runtime("modules:positions")(module),
        embeddings=runtime("modules:embeddings")(module),
        folder=setup.folder,
        world=setup.world,
        say=setup.trackers.say,
    )
    return builder.build(evaluations.objectives())


def _check(parts: TrainingParts) -> None:
    """Collective: a line, or an error, where a schedule does not fit the run or the loss would depend on the cut."""
    for schedule in parts.schedules.values():
        schedule(0, parts.steps)
    if parts.is_coupled:
        return
    examples = two_examples(parts.feed.dataset, parts.feed.ordering, parts.feed.batches.ceiling)
    line = check_cut(
        parts.forward,
        parts.engine,
        parts.feed.batches,
        examples,
        lambda rows, number: parts.context(0, rows, number, training=False),
        half=parts.config.engine.precision == "bf16",
    )
    if line:
        parts.trackers.say(line)
