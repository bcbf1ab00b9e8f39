"""All that `ike-data check` finds out about a dataset, row by row, without holding rows."""

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import attrs

from ike_data.commands.duplicates import Duplicates
from ike_data.commands.lengths import Lengths
from ike_data.ledger import ROWS_SHOWN, Entry, Kind, Tally
from ike_data.store.block import Block


@attrs.define
class Finding:
    """Entries of the ledger that begin alike."""

    kind: Kind
    reason: str
    """Up to its colon."""
    count: int = 0
    tokens: int = 0
    """Not used."""
    first: list[Entry] = attrs.field(factory=list)


@attrs.define
class Survey:
    """What is found, as it grows."""

    max_tokens: int
    duplicates: Duplicates
    tally: Tally = attrs.field(factory=Tally)
    _counts: Counter[int] = attrs.field(factory=Counter)
    _findings: dict[tuple[str, str], Finding] = attrs.field(factory=dict)

    def add(self, block: Block) -> None:
        """The rows that follow."""
        block.add_to(self.tally)
        self._counts.update(_sizes(block.numbers))
        self.duplicates.add(block)
        for entry in block.entries:
            self._note(entry)

    def findings(self) -> list[Finding]:
        """Skipped first, and of a kind the most frequent."""
        order = ("skipped", "truncated", "altered")
        return sorted(self._findings.values(), key=lambda finding: (order.index(finding.kind), -finding.count))

    def lengths(self) -> Lengths | None:
        """Of the examples as the processor made them, longer than `max_tokens` too; None where there are none."""
        counts = {length: count for length, count in self._counts.items() if count}
        return Lengths(counts) if counts else None

    def _note(self, entry: Entry) -> None:
        reason = entry.reason.partition(":")[0]
        finding = self._findings.setdefault((entry.kind, reason), Finding(entry.kind, reason))
        finding.count += 1
        finding.tokens += entry.tokens
        if len(finding.first) < ROWS_SHOWN:
            finding.first.append(entry)
        if entry.kind == "truncated":  # counted above with what is left of it
            self._counts[self.max_tokens] -= 1
            self._counts[self.max_tokens + entry.tokens] += 1
        elif entry.tokens:
            self._counts[entry.tokens] += 1


def _sizes(numbers: Mapping[str, Any]) -> list[int]:
    """Tokens of each example."""
    ends = [0, *accumulate(numbers["segments"])]
    bounds = [0, *accumulate(numbers["examples"])]
    return [ends[end] - ends[start] for start, end in pairwise(bounds)]
