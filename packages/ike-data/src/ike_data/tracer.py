"""How a template's environment passes traced texts on, where jinja's own doings would look into them."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ike_data.traced_text import Trace, TracedText

if TYPE_CHECKING:
    from jinja2 import Environment

TEXT_TESTS = ("string", "iterable", "sequence")
"""Jinja's tests that a text passes."""


@attrs.define
class Tracer:
    """Knows what is being traced."""

    trace: Trace | None = None
    """None: nothing, and every text is a `str`."""

    def follow(self, environment: "Environment") -> None:
        """What the environment prints, captures, trims and tests may hold traced texts."""
        environment.finalize = TracedText.shown
        environment.concat = self.joined  # type: ignore[method-assign]
        environment.filters["trim"] = _trimmed_by(environment.filters["trim"])
        for name in TEXT_TESTS:
            test: Any = environment.tests[name]
            environment.tests[name] = _passed_by_texts(test)

    def joined(self, printed: Iterable[Any]) -> Any:
        """What was printed, as something that more is done with: the value of a block or a macro."""
        text = "".join(map(TracedText.shown, printed))
        return text if self.trace is None else self.trace.text(text)

    def concatenated(self, values: Sequence[Any]) -> Any:
        """`a ~ b`, of values of any kind."""
        return self.joined(value if isinstance(value, TracedText) else str(value) for value in values)


def _trimmed_by(trim: Callable[..., str]) -> Callable[..., Any]:
    def trimmed(value: Any, *chars: str) -> Any:
        return value.strip(*chars) if isinstance(value, TracedText) else trim(value, *chars)

    return trimmed


def _passed_by_texts(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, TracedText) or test(value)
