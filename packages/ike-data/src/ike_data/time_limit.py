"""How long a chat template may take for one conversation, and how much it may make of something."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

LIMIT_SECONDS = 10.0
"""Real templates take well under a millisecond."""
LONGEST = 1 << 24
"""Elements of what `*` may repeat to, and the base of a `**`."""


class TooLongError(Exception):
    """The time is up."""


@attrs.define
class Clock:
    """Looked at by whatever may go on for ever."""

    deadline: float = 0.0
    """On the monotonic clock."""

    def start(self) -> None:
        """The time runs from now."""
        self.deadline = time.monotonic() + LIMIT_SECONDS

    def check(self) -> None:
        """Raises TooLongError."""
        if time.monotonic() > self.deadline:
            raise TooLongError

    def watched(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, with a look at the clock for each. Raises TooLongError."""
        for item in items:
            self.check()
            yield item


def check_operation(operator: str, left: Any, right: Any) -> None:
    """OverflowError for a `*` or `**` that no clock could stop once it runs."""
    if operator == "**" and not (abs(left) < LONGEST and abs(right) < 64):
        raise OverflowError(f"{left} ** {right}")
    for one, other in ((left, right), (right, left)):
        if isinstance(one, str | list | tuple) and isinstance(other, int) and len(one) * other > LONGEST:
            raise OverflowError(f"{len(one)} elements * {other}")
