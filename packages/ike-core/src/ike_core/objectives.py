"""What is minimised, and how its examples become batches: given in Python, or by `[objective]` and `[batch]`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ike_core.batch import Batch, Vocabulary
from ike_core.collating import OwnCollate
from ike_core.config import Config
from ike_core.config.component import Component
from ike_core.context import Context
from ike_core.cutting import Ceiling, cut
from ike_core.door import runtime
from ike_core.errors import ConfigError
from ike_core.examples import AnyExample
from ike_core.feed import Batches, CutStep
from ike_core.interfaces import Collate, Collates, Dataset, Engine, StepObjective, World
from ike_core.mixing import Mixture
from ike_core.ordering import Ordering
from ike_core.outputs import as_output
from ike_core.step_function import StepFunction, is_plain
from ike_core.step_output import StepOutput

Forward = Callable[[Any, Batch, Context], StepOutput]

PACKED = "ike_tasks:Packed"
PADDED = "ike_core.runtime:Padded"


@attrs.frozen
class ObjectiveBuilder:
    """The objective of a run, and the collate that goes with it."""

    config: Config
    tokenizer: Any
    given: Any
    """`train_forward_step_fn` of the pipeline."""
    collate_fn: Callable[..., Any] | None

    def objective(self) -> Any:
        """A callable (model, batch, context), or a StepObjective."""
        if self.given is not None:
            return as_objective(self.given, name="train_forward_step_fn")
        if self.config.objective is None:
            raise ConfigError("[objective] is missing: say objective.uses, or give train_forward_step_fn in Python")
        part = self.config.objective.build(tokenizer=self.tokenizer)
        return as_objective(part, name=f"objective.uses = {self.config.objective.uses}")

    def collate(self, objective: Any) -> Collate:
        """What prepares the model, and makes the batches unless the user's code does."""
        section = self.config.batch.collate
        if section is None:
            plain = isinstance(objective, StepFunction) or self.collate_fn is not None
            section = Component("batch.collate", PADDED if plain else PACKED, {})
        made: Collate = section.build(tokenizer=self.tokenizer)
        return made

    def own_collate(self, objective: Any) -> Callable[..., Any] | None:
        """The user's function, or the objective's own method."""
        if self.collate_fn is not None:
            return self.collate_fn
        return objective.collate if isinstance(objective, Collates) else None

    def checked(
        self,
        collate: Collate,
        objective: Any,
        engine: Engine,
        frozen: Mapping[str, Any],
        dataset: Dataset,
        vocabulary: Vocabulary,
        say: Any,
    ) -> Collate:
        """Collective: the collate that all models read right; one line where it is not the one asked for."""
        if self.own_collate(objective) is not None:
            return collate
        sample = [dataset[index] for index in range(min(len(dataset), 8))]
        with engine.evaluating():
            for name, model in (("", engine.model), *frozen.items()):
                collate, line = collate.check(model, sample, vocabulary, packing=self.config.batch.packing)
                if line:
                    say(f"frozen.{name}: {line}" if name else line)
        return collate

    def batches(
        self,
        collate: Collate,
        objective: Any,
        vocabulary: Vocabulary,
        dataset: Dataset,
        world: World,
        given_cut: CutStep | None,
    ) -> Batches:
        section = self.config.batch
        own = self.own_collate(objective)
        if own is None:
            made: Callable[[Sequence[AnyExample]], Batch] = _Collating(collate, vocabulary)
        else:
            shortest = min(range(min(len(dataset), 256)), key=dataset.size)
            made = OwnCollate(own, vocabulary, dataset[shortest])
        return Batches(
            collate=made,
            ceiling=Ceiling(section.tokens_per_device, section.examples_per_device, pads=collate.pads),
            world=world,
            counts_as_weigh=own is None,
            cut=given_cut or cut,
            finish=runtime("placement:finisher")(world.device),
        )


@attrs.frozen
class _Collating:
    """A Collate part with its vocabulary."""

    part: Collate
    vocabulary: Vocabulary

    def __call__(self, examples: Sequence[AnyExample]) -> Batch:
        return self.part.collate(examples, self.vocabulary)


def as_objective(value: Any, *, name: str) -> Any:
    """A plain function as an objective; ConfigError for what is neither."""
    if isinstance(value, StepObjective):
        return value
    if not callable(value):
        raise ConfigError(
            f"{name} can't be called: an objective takes (model, batch, context), a function (model, samples)"
        )
    return StepFunction(value) if is_plain(value, name=name) else value


def forward_of(objective: Any) -> Forward:
    """Calls an objective; always a StepOutput."""

    def forward(model: Any, batch: Batch, context: Context) -> StepOutput:
        return as_output(objective(model, batch, context), objective, learns=False)

    return forward


def two_examples(dataset: Dataset, ordering: Ordering | Mixture, ceiling: Ceiling) -> list[AnyExample]:
    """The shortest of step 0's examples and the next longer one, if one micro-batch holds both; alike on all ranks."""
    indices = sorted(ordering.examples(0), key=dataset.size)
    first = dataset.size(indices[0])
    longer = next((index for index in indices[1:] if dataset.size(index) > first), indices[-1])
    if longer == indices[0] or not ceiling.holds(2, first + dataset.size(longer), dataset.size(longer)):
        return []
    return [dataset[indices[0]], dataset[longer]]
