"""Rows that were not used, not used whole, or altered: each with its place and the reason; a budget stops the run."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import orjson

from ike_core.errors import DataError

Kind = Literal["skipped", "truncated", "altered"]
"""skipped: not learned from, counts against the budget. truncated: learned from in part; altered: learned from, not
quite as the file says it. Neither counts."""

ROWS_SHOWN = 3
EARLY = 200
"""When this many rows have been read and not one could be used, the rest need not be read to know what is wrong."""


@attrs.frozen
class Entry:
    """One row of the ledger."""

    source: str
    """`train.jsonl:17`"""
    reason: str
    """What comes before the first colon is what entries are counted by."""
    kind: Kind = "skipped"
    tokens: int = 0
    """How many tokens are not used, where they were counted."""


@attrs.define
class Tally:
    """What is known of rows without holding them. Grows while they are read."""

    rows: int = 0
    """Read."""
    unusable: int = 0
    """Rows that gave nothing to learn from."""
    examples: int = 0
    tokens: int = 0
    """Of all examples, trunks once."""
    supervised: float = 0.0
    """Sum of token weight x row weight."""
    largest_token: int = 0
    """The highest id; 0: none was looked at."""
    reasons: dict[str, dict[str, int]] = attrs.field(factory=dict)
    """kind -> reason up to its colon -> entries."""
    first: list[Entry] = attrs.field(factory=list)
    """The first rows skipped."""
    shapes: dict[str, int] = attrs.field(factory=dict)
    """Name of a shape -> rows that were read as one."""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> "Tally":
        """From its JSON."""
        return cls(**{**said, "first": [Entry(**entry) for entry in said["first"]]})

    def count(self, entries: Iterable[Entry]) -> None:
        """Entries of rows that were read."""
        for entry in entries:
            counts = self.reasons.setdefault(entry.kind, {})
            reason = entry.reason.partition(":")[0]
            counts[reason] = counts.get(reason, 0) + 1
            if entry.kind == "skipped" and len(self.first) < ROWS_SHOWN:
                self.first.append(entry)

    def count_shapes(self, shapes: Mapping[str, int]) -> None:
        """What rows were read as."""
        for name, rows in shapes.items():
            self.shapes[name] = self.shapes.get(name, 0) + rows

    def counts(self, kind: Kind) -> str:
        """`3 empty response, 2 too long`, the most frequent first."""
        counted = sorted(self.reasons.get(kind, {}).items(), key=lambda item: -item[1])
        return ", ".join(f"{count} {reason}" for reason, count in counted)

    def summary(self, name: str) -> str:
        """One line for the console."""
        line = (
            f"{name} data: {self.rows:,} rows{self._read_as()}, {self.examples:,} examples, {self.tokens:,} tokens, "
            f"{self.supervised:,.0f} supervised"
        )
        if skipped := self.counts("skipped"):  # of rows that gave something else too, perhaps
            line += f"; {self.unusable:,} rows not used ({skipped})"
        kinds: tuple[Kind, ...] = ("truncated", "altered")
        return "; ".join([line, *filter(None, map(self.counts, kinds))])

    def _read_as(self) -> str:
        """` as messages`, or ` as 2 messages and 1 alpaca`."""
        if len(self.shapes) == 1:
            return f" as {next(iter(self.shapes))}"
        counted = sorted(self.shapes.items(), key=lambda item: -item[1])
        return f" as {' and '.join(f'{rows:,} {name}' for name, rows in counted)}" if counted else ""


@attrs.frozen
class Budget:
    """How much of a dataset may be unusable."""

    name: str
    """Of the dataset."""
    share: float
    """Of its rows."""
    ledger: Path
    """Where all entries can be read."""

    def check_early(self, tally: Tally) -> None:
        """DataError when the files are of another shape than the processor reads."""
        if tally.rows == tally.unusable >= EARLY:
            raise DataError(self._refusal(tally, f"none of the first {tally.rows} rows can be used"))

    def check(self, tally: Tally) -> None:
        """DataError when more rows than the budget's share can't be used, or none can."""
        if tally.rows == 0:
            raise DataError(f"{self.name} data: its files have no rows")
        if tally.rows == tally.unusable:
            raise DataError(self._refusal(tally, f"none of {tally.rows} rows can be used"))
        if tally.unusable > self.share * tally.rows:
            share = f"{tally.unusable} of {tally.rows} rows ({tally.unusable / tally.rows:.1%}) can't be used"
            raise DataError(self._refusal(tally, f"{share}, and data.ledger.budget allows {self.share:.1%}"))

    def _refusal(self, tally: Tally, what: str) -> str:
        shown = [f"  {entry.source}: {entry.reason}" for entry in tally.first]
        count = sum(tally.reasons["skipped"].values()) - len(shown)
        more = [f"  and {count} more in {self.ledger}"] if count else []
        return "\n".join([f"{self.name} data: {what}: {tally.counts('skipped')}", *shown, *more])


def lines_of(entries: Iterable[Entry]) -> Iterator[bytes]:
    """One JSON object a line."""
    for entry in entries:
        yield orjson.dumps(attrs.asdict(entry)) + b"\n"


def add_to_ledger(path: Path, name: str, entries: Path) -> None:
    """Puts the lines of `entries` into a run's ledger under a dataset's name, in the place of those that it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    opening = b'{"data":' + orjson.dumps(name) + b","
    with partial.open("wb") as ledger:
        if path.exists():
            with path.open("rb") as before:
                ledger.writelines(line for line in before if not line.startswith(opening))
        with entries.open("rb") as added:
            ledger.writelines(opening + line[1:] for line in added)
    partial.replace(path)
