"""The hooks of a run: each is called at the moments it names, in the order of the tables, on every rank."""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from ike_core.config.component import Component
from ike_core.context import Context
from ike_core.errors import ConfigError
from ike_core.interfaces import Engine, StepReport, Tokenizer

MOMENTS = ("before_training", "before_update", "after_update", "after_evaluate", "after_save")
Call = Callable[..., None]


@attrs.frozen
class Hooks:
    """What a pipeline holds. A hook needs no base class: having a method of a moment's name is asking to be called."""

    hooks: Mapping[str, Any]
    """By the name of their table; ConfigError for one that no moment would ever call."""
    _calls: Mapping[str, tuple[tuple[str, Call], ...]] = attrs.field(init=False, repr=False)

    @classmethod
    def of(cls, tables: Mapping[str, Component], given: Mapping[str, Any], *, tokenizer: Tokenizer | None) -> "Hooks":
        """Those of `[hooks]`, built, then those that Python gave."""
        return cls({name: table.build(tokenizer=tokenizer) for name, table in tables.items()} | dict(given))

    @_calls.default
    def _find_calls(self) -> Mapping[str, tuple[tuple[str, Call], ...]]:
        found = {name: _methods(name, hook) for name, hook in self.hooks.items()}
        return {
            moment: tuple((name, methods[moment]) for name, methods in found.items() if moment in methods)
            for moment in MOMENTS
        }

    def before_training(self, engine: Engine, context: Context) -> None:
        """Once, before the first step of this start; what a checkpoint held has been restored."""
        self._call("before_training", engine, context)

    def before_update(self, engine: Engine, context: Context) -> None:
        """Gradients are complete; the weights are still those that made them."""
        self._call("before_update", engine, context)

    def after_update(self, report: StepReport, context: Context) -> None:
        self._call("after_update", report, context)

    def after_evaluate(self, values: Mapping[str, float], context: Context) -> None:
        self._call("after_evaluate", values, context)

    def after_save(self, folder: Path, context: Context) -> None:
        self._call("after_save", folder, context)

    def _call(self, moment: str, *arguments: Any) -> None:
        for name, call in self._calls[moment]:
            try:
                call(*arguments)
            except Exception as error:
                error.add_note(f"raised by hooks.{name}.{moment}")
                raise


def _methods(name: str, hook: Any) -> dict[str, Call]:
    """The moments that a hook has; a method that only looks like one is a spelling mistake."""
    named = [attribute for attribute in dir(hook) if attribute.startswith(("before_", "after_"))]
    methods = {attribute: method for attribute in named if callable(method := getattr(hook, attribute))}
    for attribute in methods:
        if attribute not in MOMENTS:
            nearest = difflib.get_close_matches(attribute, MOMENTS, n=1, cutoff=0.0)[0]
            raise ConfigError(
                f"hooks.{name}: {type(hook).__name__}.{attribute} would never be called; did you mean {nearest}? "
                f"The moments are {', '.join(MOMENTS)}"
            )
    if not methods:
        raise ConfigError(f"hooks.{name}: {type(hook).__name__} has none of {', '.join(MOMENTS)}; give it one")
    return methods
