"""Hooks are called at the moments they name, in the order of their tables."""

import pytest

from ike_core.context import Context
from ike_core.errors import ConfigError
from ike_core.hooks import Hooks

CONTEXT = Context(step=3, steps=10)


class Recorder:
    """All four moments."""

    def __init__(self, name: str, heard: list) -> None:
        self.name, self.heard = name, heard

    def before_update(self, engine, context) -> None:
        self.heard.append((self.name, "before_update", engine, context.step))

    def after_update(self, report, context) -> None:
        self.heard.append((self.name, "after_update", report, context.step))

    def after_evaluate(self, values, context) -> None:
        self.heard.append((self.name, "after_evaluate", values, context.step))

    def after_save(self, folder, context) -> None:
        self.heard.append((self.name, "after_save", folder, context.step))


class OnlySaves:
    after_steps: int = 5  # a field that starts like a moment is no moment

    def __init__(self, heard: list) -> None:
        self.heard = heard

    def after_save(self, folder, context) -> None:
        self.heard.append(("saves", "after_save", folder, context.step))


def test_each_moment_reaches_the_hooks_that_have_it_in_table_order() -> None:
    heard: list = []
    hooks = Hooks({"z": Recorder("z", heard), "saves": OnlySaves(heard), "a": Recorder("a", heard)})
    hooks.before_update("engine", CONTEXT)
    hooks.after_save("folder", CONTEXT)
    assert heard == [
        ("z", "before_update", "engine", 3),
        ("a", "before_update", "engine", 3),
        ("z", "after_save", "folder", 3),
        ("saves", "after_save", "folder", 3),
        ("a", "after_save", "folder", 3),
    ]


def test_all_four_moments_hand_on_their_arguments() -> None:
    heard: list = []
    hooks = Hooks({"h": Recorder("h", heard)})
    hooks.before_update("engine", CONTEXT)
    hooks.after_update("report", CONTEXT)
    hooks.after_evaluate({"valid/a/loss": 1.0}, CONTEXT)
    hooks.after_save("folder", CONTEXT)
    assert [what for _, _, what, _ in heard] == ["engine", "report", {"valid/a/loss": 1.0}, "folder"]


def test_no_hooks_is_fine() -> None:
    Hooks({}).after_update("report", CONTEXT)
    assert Hooks({}).hooks == {}


def test_a_misspelt_moment_is_refused_with_the_nearest_one() -> None:
    class Misspelt:
        def after_updates(self, report, context) -> None: ...

    with pytest.raises(ConfigError, match=r"hooks\.ema: Misspelt\.after_updates would never.*mean after_update\?"):
        Hooks({"ema": Misspelt()})


def test_a_hook_without_any_moment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hooks\.ema: object has none of before_training, before_update"):
        Hooks({"ema": object()})


def test_an_error_in_a_hook_says_which_hook_it_was() -> None:
    class Broken:
        def after_update(self, report, context) -> None:
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError) as caught:
        Hooks({"ema": Broken()}).after_update("report", CONTEXT)
    assert caught.value.__notes__ == ["raised by hooks.ema.after_update"]
