"""What the launcher shows: the ranks' lines, and on a terminal a progress bar under them."""

import sys
from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from ike_core.console import ProgressBar, is_terminal


class Screen(Protocol):
    """Where lines and progress go."""

    def line(self, text: str, *, is_error: bool) -> None: ...

    def progress(self, values: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class PlainScreen:
    """Lines alone, stdout to stdout and stderr to stderr: for files and pipes."""

    def line(self, text: str, *, is_error: bool) -> None:
        print(text, file=sys.stderr if is_error else sys.stdout, flush=True)

    def progress(self, values: Mapping[str, Any]) -> None:
        """Not drawn: the ranks' own lines say it."""

    def close(self) -> None:
        """Nothing to take back."""


@attrs.define
class TerminalScreen:
    """Lines above a bar, which appears with the first progress."""

    title: str
    _bar: ProgressBar | None = None
    _plain: PlainScreen = attrs.Factory(PlainScreen)

    def line(self, text: str, *, is_error: bool) -> None:
        if self._bar is None or (is_error and not sys.stderr.isatty()):
            self._plain.line(text, is_error=is_error)
        else:
            self._bar.print(text)

    def progress(self, values: Mapping[str, Any]) -> None:
        if self._bar is None:
            self._bar = ProgressBar(self.title)
        self._bar.update(values)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def new_screen(title: str) -> Screen:
    """For this process's stdout; `title` stands before the bar."""
    return TerminalScreen(title) if is_terminal() else PlainScreen()
