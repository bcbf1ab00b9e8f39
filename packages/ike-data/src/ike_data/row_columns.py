"""Columns by the names that processors know them by, whatever the rows call them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ike_core.interfaces import Record
from ike_data.row_error import RowError

_ABSENT = object()
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def renamed(record: Record, columns: Mapping[str, str]) -> Record:
    """The record under the names that are known: `columns` says where each is, 'outer.inner' within a nested object.

    A column that was renamed is there under its new name alone. Raises RowError where one is missing.
    """
    if not columns:
        return record
    moved = set(columns.values()) | set(columns)
    rest = {name: value for name, value in record.items() if name not in moved}
    return {**rest, **{known: column(record, said) for known, said in columns.items() if said}}


def column(record: Record, said: str) -> Any:
    """The value of a column, 'outer.inner' that of a nested one. Raises RowError."""
    if said in record:
        return record[said]
    value: Any = record
    for step in said.split("."):
        value = value.get(step, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is _ABSENT:
            raise RowError(f"no column {said!r}: the row has {names(record)}")
    return value


def check_known(columns: Mapping[str, str], known: Sequence[str]) -> None:
    """ValueError where a table of columns names what no row of this processor has."""
    for name in columns:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ValueError(f"columns.{name}: no such column{hint}")


def text(record: Record, name: str) -> str:
    """A column that holds text. Raises RowError."""
    value = record.get(name)
    if not isinstance(value, str):
        raise RowError(f"column {name!r} is not text: it holds {kind(value)}")
    return value


def number(value: Any, what: str) -> float:
    """A finite number; true is 1. Raises RowError, which names `what` it is."""
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        raise RowError(f"{what} is no finite number: it is {value!r}")
    return float(value)


def weight(record: Record) -> float:
    """The row's own `weight`; 1 where it has none. Raises RowError."""
    if record.get("weight") is None:
        return 1.0
    own = number(record["weight"], "the row's weight")
    if own < 0.0:
        raise RowError(f"the row's weight is negative: {own}")
    return own


def riding(record: Record, fields: Iterable[str]) -> dict[str, Any]:
    """The columns that ride along, by what the rows call them. Raises RowError where one is missing."""
    return {name: column(record, name) for name in fields}


def names(record: Record) -> str:
    """The columns of a row, for messages."""
    return ", ".join(map(repr, record)) or "no columns"


def kind(value: Any) -> str:
    """What a value is, for messages."""
    return "null" if value is None else _KINDS.get(type(value), f"a {type(value).__name__}")
