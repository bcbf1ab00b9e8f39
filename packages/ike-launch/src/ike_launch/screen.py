"""What the launcher shows: the ranks' lines, and on a terminal a progress bar under them."""

import shutil
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from ike_core.console import ProgressBar, is_terminal


class Screen(Protocol):
    """Where lines and progress go."""

    def line(self, text: str, *, is_error: bool) -> None: ...

    def unfinished(self, text: str, *, is_error: bool) -> None:
        """A line that may still grow or be drawn again."""
        ...

    def progress(self, values: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class PlainScreen:
    """Lines alone, stdout to stdout and stderr to stderr: for files and pipes."""

    def line(self, text: str, *, is_error: bool) -> None:
        print(text, file=sys.stderr if is_error else sys.stdout, flush=True)

    def unfinished(self, text: str, *, is_error: bool) -> None:
        """Not shown before it is whole: what is written here can't be taken back."""

    def progress(self, values: Mapping[str, Any]) -> None:
        """Not drawn: the ranks' own lines say it."""

    def close(self) -> None:
        """Nothing to take back."""


@attrs.define
class TerminalScreen:
    """Lines above a bar, which appears with the first progress; until then above what rank 0 has not finished."""

    title: str
    _bar: ProgressBar | None = None
    _unfinished: str = ""
    _plain: PlainScreen = attrs.Factory(PlainScreen)

    def line(self, text: str, *, is_error: bool) -> None:
        self._erase()
        if self._bar is None or not _is_shown(is_error):
            self._plain.line(text, is_error=is_error)
        else:
            self._bar.print(text)

    def unfinished(self, text: str, *, is_error: bool) -> None:
        width = shutil.get_terminal_size().columns - 1
        if self._bar is None and _is_shown(is_error) and text[:width] != self._unfinished:
            self._erase()
            self._unfinished = text[:width]
            print(self._unfinished, end="", flush=True)

    def progress(self, values: Mapping[str, Any]) -> None:
        if self._bar is None:
            self._erase()
            self._bar = ProgressBar(self.title)
        self._bar.update(values)

    def close(self) -> None:
        self._erase()
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _erase(self) -> None:
        if self._unfinished:
            print("\r\x1b[2K", end="", flush=True)
            self._unfinished = ""


def _is_shown(is_error: bool) -> bool:
    """Whether the stream is on this screen: `2> file` takes stderr off it."""
    return not is_error or sys.stderr.isatty()


def new_screen(title: str) -> Screen:
    """For this process's stdout; `title` stands before the bar."""
    return TerminalScreen(title) if is_terminal() else PlainScreen()
