"""Records in, rows out: the same order, each exactly once, over any number of ranks."""

import glob
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import attrs

from ike_core.answers import ContextOf
from ike_core.batch import Batch, Vocabulary
from ike_core.config import Config, load_config
from ike_core.config.sections import InferenceSection
from ike_core.context import Context
from ike_core.door import runtime
from ike_core.errors import ConfigError, DataError
from ike_core.evaluations import answers
from ike_core.examples import AnyExample, Example, Skip
from ike_core.interfaces import DataProcessor, Record
from ike_core.models import ModelBuilder
from ike_core.run_setup import RunSetup, set_up


@attrs.define(eq=False)
class InferencePipeline:
    """Runs an inference task over the files of `[inference]`; what the arguments leave open comes from `config`."""

    model: Any = attrs.field(default=None, kw_only=True)
    """A module, a `build_model()` callable, or None: `[model]` says it."""
    task: Any = attrs.field(default=None, kw_only=True)
    """An InferenceTask, or None: `[inference]` says it."""
    data_processor_classes: Any = attrs.field(default=None, kw_only=True)
    """A sequence of one, or {"inference": ...}: each record goes through it, and what it yields replaces `prepare`."""
    config: Config | None = attrs.field(default=None, kw_only=True)

    def run(self) -> Path:
        """Collective: the output's path. It appears when it is whole; until then it is `<output>.partial`."""
        config = self.config if self.config is not None else load_config()
        section = config.inference
        if section is None:
            raise ConfigError("[inference] is missing: say its files and its output")
        _check_output(section)
        setup = set_up(config, model=self.model, trains=False)
        setup.start_trackers(0)
        try:
            return self._run(setup, section)
        finally:
            setup.trackers.finish()

    def _run(self, setup: RunSetup, section: InferenceSection) -> Path:
        models = ModelBuilder(
            config=setup.config,
            engine_part=setup.engine_part,
            world=setup.world,
            vocabulary=setup.vocabulary,
            trains=False,
            say=setup.trackers.say,
        )
        module = models.model(self.model)
        engine = models.engine_for_inference(module, module)
        vocabulary = setup.vocabulary or runtime("modules:vocabulary")(module)
        positions = runtime("modules:positions")(module)
        asked = answers(setup.config, self._task(setup, section), section, vocabulary, positions=positions)
        was_there = section.output.exists()
        unfinished, rows = section.output.with_name(section.output.name + ".partial"), 0
        with nullcontext() if not setup.world.is_first else _opened(unfinished) as file:
            for chunk in asked.rows(engine, _context_of(setup, vocabulary)):
                if file is not None:
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in chunk)
                rows += len(chunk)
                setup.trackers.say(f"{rows} rows")
        if setup.world.is_first:
            unfinished.replace(section.output)
        setup.world.synchronize()
        setup.trackers.say(f"wrote {section.output}{' in place of an earlier one' if was_there else ''}")
        return section.output

    def _task(self, setup: RunSetup, section: InferenceSection) -> Any:
        task = section.part.build(tokenizer=setup.tokenizer) if self.task is None else self.task
        given = self.data_processor_classes
        if given is None:
            return task
        processor = given["inference"] if isinstance(given, Mapping) else given[0]
        return _Processed(task, processor() if isinstance(processor, type) else processor)


@attrs.frozen
class _Processed:
    """A task whose examples a data processor makes."""

    task: Any
    processor: DataProcessor

    def prepare(self, record: Record) -> Example | Skip:
        made = list(self.processor.process(record))
        if len(made) != 1 or not isinstance(made[0], Example | Skip):
            raise DataError(
                f"{type(self.processor).__name__} yielded {len(made)} things for one record; for inference it must be "
                "one Example or Skip, so that the output keeps a row a record"
            )
        return made[0]

    def collate(self, examples: Sequence[Example], vocabulary: Vocabulary) -> Batch:
        batch: Batch = self.task.collate(examples, vocabulary)
        return batch

    def __call__(self, model: Any, batch: Batch, context: Context) -> Sequence[Mapping[str, Any]]:
        rows: Sequence[Mapping[str, Any]] = self.task(model, batch, context)
        return rows

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
        values: Mapping[str, float] = self.task.metrics(rows)
        return values


def _check_output(section: InferenceSection) -> None:
    """Before hours of answers, not after them."""
    output = section.output
    if output.is_dir() or not output.name:
        raise ConfigError(f"inference.output = {output} is a folder; name a file in it, such as answers.jsonl")
    if any(Path(file) == output for pattern in section.files for file in glob.iglob(pattern, recursive=True)):
        raise ConfigError(f"inference.output = {output} is one of inference.files, and would replace it; name another")


def _opened(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8", newline="\n")


def _context_of(setup: RunSetup, vocabulary: Vocabulary) -> ContextOf:
    def context_of(examples: tuple[AnyExample, ...], number: int) -> Context:
        return Context(
            step=0,
            steps=0,
            training=False,
            seed=setup.config.run.seed,
            rank=setup.world.rank,
            micro_batch=number,
            vocabulary=vocabulary,
            examples=examples,
            new_generator=partial(runtime("seeds:new_generator"), setup.world.device),
        )

    return context_of
