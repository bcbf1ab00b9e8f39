"""What becomes of rows: what the processor makes of each, within the length, and what the ledger says of it."""

from collections.abc import Iterator, Sequence

import attrs

from ike_core.examples import AnyExample, Skip
from ike_core.interfaces import DataProcessor
from ike_data.ledger import Entry
from ike_data.lengths import fit
from ike_data.producing import Yield, produce
from ike_data.rows import Row


@attrs.frozen
class Outcome:
    """What one row gave."""

    source: str
    """`train.jsonl:17`"""
    examples: tuple[AnyExample, ...]
    """What is learned from."""
    sizes: tuple[int, ...]
    """Tokens of each example that the processor made, whether it is kept or not, before it was cut."""
    entries: tuple[Entry, ...]
    """What goes to the ledger."""

    @property
    def is_unusable(self) -> bool:
        """Whether it counts against the budget: nothing is learned from it."""
        return not self.examples


def outcomes(processor: DataProcessor, rows: Sequence[Row], *, max_tokens: int, too_long: str) -> Iterator[Outcome]:
    """Of each row, in order. DataError where the processor raises, or yields what is no example."""
    readable = [(source, record) for source, record in rows if not isinstance(record, Skip)]
    produced = iter(produce(processor, readable))
    for source, record in rows:
        items = [record] if isinstance(record, Skip) else next(produced)
        yield _outcome(source, items, max_tokens, too_long)


def _outcome(source: str, items: Sequence[Yield], max_tokens: int, too_long: str) -> Outcome:
    examples: list[AnyExample] = []
    entries = [] if items else [Entry(source, "the processor yielded nothing")]
    sizes = []
    for item in items:
        name = item.source or source
        if isinstance(item, Skip):
            entries.append(Entry(name, item.reason))
            continue
        sizes.append(len(item))
        fitted, unused = fit(item, max_tokens=max_tokens, too_long=too_long)
        if isinstance(fitted, Skip):
            entries.append(Entry(name, fitted.reason, tokens=unused))
            continue
        if unused:
            entries.append(Entry(name, f"{too_long}: {len(item)} tokens", "truncated", unused))
        entries += [Entry(name, note, "altered") for note in item.notes]
        examples.append(fitted if fitted.source == name else attrs.evolve(fitted, source=name))
    return Outcome(source, tuple(examples), tuple(sizes), tuple(entries))
