"""The evaluations that a run's tables, and its pipeline, ask for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from ike_core.answers import Answers
from ike_core.batch import Vocabulary
from ike_core.config import Config
from ike_core.config.sections import EvaluateSection
from ike_core.cutting import Ceiling
from ike_core.datasets import Datasets
from ike_core.door import locate, runtime
from ike_core.evaluation import CoupledEvaluation, Evaluation, ObjectiveEvaluation, TaskEvaluation
from ike_core.feed import Batches
from ike_core.interfaces import Dataset, StepObjective
from ike_core.objectives import as_objective, forward_of

RECORDS = "ike_data:read_records"


@attrs.frozen
class EvaluationBuilder:
    """`[data.valid.*]`, the holdout and `[evaluate.*]`."""

    config: Config
    tokenizer: Any
    given: Any
    """`evaluation_step_fn` of the pipeline: in the place of the training objective."""
    _parts: dict[str, Any] = attrs.field(init=False, factory=dict)

    def part(self, name: str, section: EvaluateSection) -> Any:
        """Of `[evaluate.<name>]`, built once."""
        if name not in self._parts:
            self._parts[name] = section.part.build(tokenizer=self.tokenizer)
        return self._parts[name]

    def asked(self) -> list[Any]:
        """What is evaluated beside the training objective."""
        parts = [self.part(name, section) for name, section in self.config.evaluate.items()]
        return parts if self.given is None else [*parts, self.given]

    def objectives(self) -> dict[str, EvaluateSection]:
        """Those tables whose part is an objective, not an inference task: they need a dataset."""
        return {name: s for name, s in self.config.evaluate.items() if not is_task(self.part(name, s))}

    def build(
        self, objective: Any, datasets: Datasets, batches: Batches, vocabulary: Vocabulary, *, positions: int
    ) -> tuple[Evaluation, ...]:
        trained = objective if self.given is None else as_objective(self.given, name="evaluation_step_fn")
        made: list[Evaluation] = [
            self._of_objective(f"valid/{name}", None, trained, dataset, batches)
            for name, dataset in datasets.valid.items()
        ]
        for name, section in self.config.evaluate.items():
            part, title = self.part(name, section), f"evaluate/{name}"
            if name in datasets.evaluate:
                objective = as_objective(part, name=f"evaluate.{name}.uses")
                made.append(self._of_objective(title, section.cadence, objective, datasets.evaluate[name], batches))
            else:
                asked = answers(self.config, part, section, vocabulary, positions=positions)
                made.append(TaskEvaluation(title, section.cadence, asked))
        return tuple(made)

    def _of_objective(self, title: str, every: Any, objective: Any, dataset: Dataset, batches: Batches) -> Evaluation:
        at_once = self.config.batch.examples_per_step
        if isinstance(objective, StepObjective):
            couple: Callable[..., Any] = partial(runtime("coupled_step:coupled_loss"), objective, batches)
            return CoupledEvaluation(title, every, dataset, couple, at_once)
        return ObjectiveEvaluation(title, every, dataset, forward_of(objective), batches, at_once)


def is_task(part: Any) -> bool:
    """An inference task prepares records; an objective is given examples."""
    return hasattr(part, "prepare") and hasattr(part, "metrics")


def answers(config: Config, task: Any, section: Any, vocabulary: Vocabulary, *, positions: int) -> Answers:
    """A task over the files of its table."""
    ceiling = Ceiling(config.batch.tokens_per_device, config.batch.examples_per_device, pads=True)
    return Answers(task, partial(locate(RECORDS), section.files, limit=section.limit), vocabulary, ceiling, positions)
