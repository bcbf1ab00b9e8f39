"""`python -m ike_core.config.check train|infer LAYER... [key=value...]`: imports and structures the parts of a run.

The launcher runs it in one child before any rank starts: whatever a part's module does at import happens there first.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import attrs

from ike_core.config.component import Component
from ike_core.config.config import Config
from ike_core.config.load import load_config
from ike_core.errors import ConfigError, IkeError

_NEEDED = {
    "train": {
        "model": 'say model.path = "FOLDER or hub name", or model.uses',
        "data.train": 'say data.train.files = ["rows.jsonl"]',
        "data.train.processor": 'say data.train.processor.uses, such as "ike_data:ChatProcessor"',
        "objective": 'say objective.uses, such as "ike_tasks:SFT"',
    },
    "infer": {
        "model": 'say model.path = "FOLDER or hub name", or model.uses',
        "inference": 'say inference.files = ["questions.jsonl"] and inference.output = "answers.jsonl"',
    },
}
"""Tables without which a command can't begin, and what to say instead of nothing."""


def check_parts(command: str, config: Config) -> None:
    """ConfigError with everything that is wrong: tables that are missing, parts that can't be built."""
    wrong: list[str] = []
    for name, remedy in _NEEDED[command].items():
        if not _has(config, name):
            wrong.append(f"[{name}] is missing: {remedy}")
    tokenizer = _built(wrong, lambda: _tokenizer(config))
    for component in _parts(command, config):
        defaults = _model_fields(config) if component.key[0] == "frozen" else {}
        _built(wrong, lambda: component.build(tokenizer=tokenizer, **defaults))  # noqa: B023 (called at once)
    if wrong:
        raise ConfigError("\n".join(dict.fromkeys(wrong)))


def _has(config: Config, name: str) -> bool:
    table: Any = config.tree
    for part in name.split("."):
        table = table.get(part, {})
    return bool(table)


def _built(wrong: list[str], build: Callable[[], Any]) -> Any:
    try:
        return build()
    except ConfigError as error:
        wrong.append(str(error))
        return None


def _tokenizer(config: Config) -> Any:
    component = config.tokenizer
    if component is None or (component.is_default and find_spec(component.uses.split(".")[0].split(":")[0]) is None):
        return None
    path = _model_fields(config).get("path")
    if path is None and "path" not in component.table and component.is_default:
        return None
    return component.build(path=path) if path is not None else component.build()


def _model_fields(config: Config) -> dict[str, Any]:
    return dict(config.model.part.table) if config.model is not None else {}


def _parts(command: str, config: Config) -> Iterator[Component]:
    """Those that the command builds, but the tokenizer."""
    yield from _components([config.model, config.engine, config.checkpoint, config.trackers])
    if command == "infer":
        yield from _components(config.inference)
    else:
        yield from _components(
            [
                config.frozen,
                config.data,
                config.objective,
                config.optimizer,
                config.schedule,
                config.batch,
                config.evaluate,
                config.hooks,
            ]
        )


def _components(value: Any) -> Iterator[Component]:
    """All in a section, at any depth."""
    if isinstance(value, Component):
        if not (value.is_default and find_spec(value.uses.partition(":")[0].partition(".")[0]) is None):
            yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _components(inner)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _components(getattr(value, field.name))


def main(arguments: Sequence[str]) -> int:
    """0, or the error's exit code with what is wrong on standard error."""
    command, *layers = arguments
    try:
        check_parts(command, load_config(*layers))
    except IkeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
