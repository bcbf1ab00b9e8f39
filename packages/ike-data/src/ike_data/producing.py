"""Rows to examples by any processor, with a check of what a user's class yields."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ike_core.errors import DataError, IkeError
from ike_core.examples import AnyExample, Comparison, Example, LabelledExample, Skip
from ike_core.interfaces import DataProcessor, Record

Yield = AnyExample | Skip


@runtime_checkable
class BlockProcessor(Protocol):
    """A processor that is faster on many records at once: the tokenizer takes texts in blocks."""

    def process_block(self, records: Sequence[Record]) -> list[list[Yield]]:
        """What `process` yields for each record."""
        ...


@runtime_checkable
class ShapeTeller(Protocol):
    """A processor that reads rows of several shapes, and tells which one a row was taken for."""

    def shape_of(self, record: Record) -> str:
        """The name of the shape; '': the row has none that is known."""
        ...


def shapes(processor: DataProcessor, records: Iterable[Record]) -> Mapping[str, int]:
    """Name of a shape -> how many records were read as one; nothing where the processor knows of none."""
    if not isinstance(processor, ShapeTeller):
        return {}
    return Counter(filter(None, map(processor.shape_of, records)))


def produce(processor: DataProcessor, rows: Sequence[tuple[str, Record]]) -> list[list[Yield]]:
    """What the processor yields for each (source, record), checked.

    DataError where it raises, or yields something that is no example: the row and the class are named.
    """
    if isinstance(processor, BlockProcessor):
        produced: list[Any] = processor.process_block([record for _, record in rows])
    else:
        produced = [_processed(processor, source, record) for source, record in rows]
    for (source, _), items in zip(rows, produced, strict=True):
        for item in items:
            if not isinstance(item, (Example, Comparison, LabelledExample, Skip)):
                raise DataError(f"{source}: {type(processor).__name__}.process yielded {_kind(item)}; {_EXPECTED}")
    return produced


def _processed(processor: DataProcessor, source: str, record: Record) -> list[Any]:
    name = type(processor).__name__
    try:
        yielded: Any = processor.process(record)
        items = list(yielded) if isinstance(yielded, Iterable) else None
    except IkeError:
        raise
    except Exception as error:
        columns = ", ".join(record)
        what = f"{name}.process raised {type(error).__name__}: {error}"
        raise DataError(f"{source}: {what} (the row's columns: {columns})") from error
    if items is None:
        raise DataError(f"{source}: {name}.process returned {_kind(yielded)}; {_EXPECTED}")
    return items


_EXPECTED = "it must yield Example, Comparison, LabelledExample or Skip of ike_core, as many as the row gives"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
