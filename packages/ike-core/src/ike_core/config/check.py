"""`python -m ike_core.config.check train|infer LAYER... [key=value...]`: imports and structures the parts of a run.

The launcher runs it in one child before any rank starts: whatever a part's module does at import happens there first.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import attrs

from ike_core.config.component import Component
from ike_core.config.config import Config
from ike_core.config.instances import REFUSED
from ike_core.config.keys import at
from ike_core.config.load import load_config
from ike_core.config.problems import Problems
from ike_core.data_files import check_files
from ike_core.errors import ConfigError, IkeError
from ike_core.frozen_models import absent
from ike_core.interfaces import EnginePart, SchedulePart

_MODEL = 'say model.path = "a folder, or a name on the hub", or model.uses'
_PROCESSOR = ("data", "train", "processor")
_TRAIN = ("data", "train")
_NEEDED: Mapping[str, Mapping[tuple[str, ...], str]] = {
    "train": {
        ("model",): _MODEL,
        _TRAIN: 'say data.train.files = ["rows.jsonl"], a source, or named sources',
        _PROCESSOR: 'say data.train.processor.uses = "ike_data:ChatProcessor", or another',
        ("objective",): 'say objective.uses = "ike_tasks:SFT", or another',
    },
    "infer": {
        ("model",): _MODEL,
        ("inference",): 'say inference.files = ["questions.jsonl"] and inference.output = "answers.jsonl"',
    },
}
"""Tables without which a command can't begin, and what to do."""


def check_parts(command: str, config: Config) -> None:
    """ConfigError with everything that is wrong: tables that are missing, parts that can't be built."""
    problems = Problems()
    for key, remedy in _NEEDED[command].items():
        if not _is_said(config, key):
            problems.add(key, f" is missing: {remedy}")
    for name, valid in config.data.valid.items():
        if not valid.files and valid.source is None:
            problems.add(("data", "valid", name), " needs one of files and source")
    model = dict(config.model.part.table) if config.model is not None else {}
    tokenizer = None
    path = {name: value for name, value in model.items() if name == "path"}
    if config.tokenizer is not None and _is_there(config.tokenizer) and "path" in {**path, **config.tokenizer.table}:
        tokenizer = config.tokenizer.build_into(problems, tokenizer=None, defaults=path)
    if command == "train" and config.model is not None and config.model.lora is not None and find_spec("peft") is None:
        problems.add(("model", "lora"), " needs peft, which is not installed: pip install 'ike-core[lora]'")
    for component in _parts(command, config):
        defaults = model if component.key[0] == "frozen" else {}
        part = component.build_into(problems, tokenizer=tokenizer, defaults=defaults)
        if isinstance(part, EnginePart):
            _check_engine(part, config, problems)
        elif component.key[0] in ("objective", "evaluate") and (lack := absent(part, config.frozen)):
            problems.add((*component.key, "uses"), f": {lack}")
        elif component.key[-1] == "schedule" and config.length.steps is not None and part is not REFUSED:
            _check_schedule(part, component, config.length.steps, problems)
    problems.settle(config.provenance)


def _is_said(config: Config, key: tuple[str, ...]) -> bool:
    if key == _PROCESSOR and config.data.train is not None and config.data.train.sources:
        return all(source.processor is not None for source in config.data.train.sources.values())
    if key == _TRAIN:
        train = config.data.train
        return train is not None and bool(train.files or train.source or train.sources)
    try:
        at(dict(config.tree), key)
    except KeyError:
        return False
    return True


def _check_engine(part: EnginePart, config: Config, problems: Problems) -> None:
    try:
        part.check(precision=config.engine.precision)
    except ConfigError as error:
        problems.add(("engine",), f": {error}")


def _check_schedule(part: SchedulePart, component: Component, steps: int, problems: Problems) -> None:
    """Where the run's length is known before its data are: hours of preparation need not come first."""
    try:
        part(0, steps)
    except ConfigError as error:
        problems.add(component.key, f": {error}")


def _parts(command: str, config: Config) -> Iterator[Component]:
    """All that the command builds, but the tokenizer."""
    both = (config.model, config.engine, config.checkpoint, config.trackers)
    training = (config.frozen, config.data, config.objective, config.optimizer, config.schedule, config.batch)
    during = (config.evaluate, config.hooks)
    tables = (*both, config.inference) if command == "infer" else (*both, *training, *during)
    return filter(_is_there, _components(tables))


def _components(value: Any) -> Iterator[Component]:
    """All in a section, at any depth."""
    if isinstance(value, Component):
        yield value
    elif isinstance(value, dict | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _components(inner)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _components(getattr(value, field.name))


def _is_there(component: Component) -> bool:
    """A default part of a package that is not installed is left out; one that a layer names is a problem."""
    return not component.is_default or find_spec(component.uses.partition(":")[0].partition(".")[0]) is not None


def main(arguments: Sequence[str]) -> int:
    """0, or the error's exit code with what is wrong on standard error."""
    command, *layers = arguments
    try:
        config = load_config(*layers)
        check_parts(command, config)
        check_files(command, config)
    except IkeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
