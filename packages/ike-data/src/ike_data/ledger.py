"""Rows that were not used, or not used whole: each with its place and the reason; a budget stops the run."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

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
class Ledger:
    """The entries of one dataset. Grows while rows are read."""

    name: str
    path: Path
    """Where `write` puts it."""
    rows: int = 0
    """Rows read so far."""
    unusable: int = 0
    """Rows with an entry that counts."""
    entries: list[Entry] = attrs.field(factory=list)

    def count(self, entries: Iterable[Entry]) -> None:
        """One more row was read, and gave these entries."""
        added = list(entries)
        self.rows += 1
        self.unusable += any(entry.kind == "skipped" for entry in added)
        self.entries += added

    def check_early(self) -> None:
        """DataError when the files are of another shape than the processor reads."""
        if self.rows == self.unusable >= EARLY:
            raise DataError(self._refusal(f"none of the first {self.rows} rows can be used"))

    def check(self, budget: float) -> None:
        """DataError when more rows than the budget's share can't be used, or none can."""
        if self.rows == 0:
            raise DataError(f"{self.name} data: its files have no rows")
        if self.rows == self.unusable:
            raise DataError(self._refusal(f"none of {self.rows} rows can be used"))
        if self.unusable > budget * self.rows:
            share = f"{self.unusable} of {self.rows} rows ({self.unusable / self.rows:.1%}) can't be used"
            raise DataError(self._refusal(f"{share}, and data.ledger.budget allows {budget:.1%}"))

    def counts(self, kind: Kind) -> str:
        """`3 empty response, 2 too long`, the most frequent first."""
        counted = Counter(entry.reason.partition(":")[0] for entry in self.entries if entry.kind == kind)
        return ", ".join(f"{count} {reason}" for reason, count in counted.most_common())

    def write(self) -> None:
        """One JSON object a line; what other datasets wrote there stays."""
        path = self.path
        lines = [line for line in _lines(path) if orjson.loads(line)["data"] != self.name]
        lines += [orjson.dumps({"data": self.name, **attrs.asdict(entry)}) for entry in self.entries]
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        partial.write_bytes(b"".join(line + b"\n" for line in lines))
        partial.replace(path)

    def _refusal(self, what: str) -> str:
        skipped = [entry for entry in self.entries if entry.kind == "skipped"]
        shown = [f"  {entry.source}: {entry.reason}" for entry in skipped[:ROWS_SHOWN]]
        more = [f"  and {len(skipped) - ROWS_SHOWN} more in {self.path}"] if len(skipped) > ROWS_SHOWN else []
        return "\n".join([f"{self.name} data: {what}: {self.counts('skipped')}", *shown, *more])


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []
