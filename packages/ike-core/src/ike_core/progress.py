"""How far a run is."""

from collections.abc import Mapping
from typing import Any, Self

import attrs


@attrs.frozen
class Drawn:
    """What was learned from, counted."""

    examples: int = 0
    tokens: int = 0
    """Trunks once, filler not counted."""
    supervised_tokens: float = 0.0
    """Sum of weights['tokens']."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.examples + other.examples,
            self.tokens + other.tokens,
            self.supervised_tokens + other.supervised_tokens,
        )


def added(before: Mapping[str, Drawn], more: Mapping[str, Drawn]) -> dict[str, Drawn]:
    """By source, in the order in which they were first drawn from."""
    return {**before, **{name: before.get(name, Drawn()) + drawn for name, drawn in more.items()}}


@attrs.frozen
class Progress:
    """Counts since the start of the run; everything else about the data is a function of these."""

    step: int = 0
    """Optimizer updates finished (or skipped because they were not finite)."""
    epoch: float = 0.0
    """Passes over the training set."""
    examples: int = 0
    tokens: int = 0
    """All tokens read, trunks once, filler not counted."""
    supervised_tokens: float = 0.0
    """Sum of weights['tokens']."""
    skipped: int = 0
    """Updates skipped since their loss or norm was not finite."""
    sources: Mapping[str, Drawn] = attrs.field(factory=dict)
    """The same by `[data.train.sources.<name>]`; empty where there are none."""

    def values(self) -> dict[str, Any]:
        """For the log: the counts, and those of a source under `data/<source>/`."""
        counts = {"examples": self.examples, "tokens": self.tokens, "supervised_tokens": self.supervised_tokens}
        for name, drawn in self.sources.items():
            counts |= {f"data/{name}/{count}": value for count, value in attrs.asdict(drawn).items()}
        return counts

    def mix(self) -> str:
        """One line with the shares that the sources came to."""
        whole = sum(self.sources.values(), Drawn())
        shares = (
            f"{name} {_percent(drawn.examples, whole.examples)} of examples, {_percent(drawn.tokens, whole.tokens)} of "
            f"tokens, {_percent(drawn.supervised_tokens, whole.supervised_tokens)} of supervised tokens"
            for name, drawn in self.sources.items()
        )
        return "data learned from: " + "; ".join(shares)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "none"
