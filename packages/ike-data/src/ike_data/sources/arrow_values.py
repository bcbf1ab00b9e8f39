"""Values of Arrow as values of JSON, and batches of them as rows.

Dictionaries are looked up; dates, times and timestamps are text in ISO 8601's order; bytes are the UTF-8 text that they
are; a decimal of up to 15 digits is a number (all of those fit a double), one with more is text; a map is an object.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from ike_core.errors import DataError
from ike_core.examples import Skip
from ike_data.row_error import RowError
from ike_data.sources.row import Row

_EXACT_DIGITS = 15
_PLAIN = (
    *(kinds.is_null, kinds.is_boolean, kinds.is_integer, kinds.is_float32, kinds.is_float64),
    *(kinds.is_string, kinds.is_large_string, kinds.is_string_view),
)
_TEXT = (
    *(kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary),
    *(kinds.is_timestamp, kinds.is_date, kinds.is_time),
)
_LISTS = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
_LIST_VIEWS = (kinds.is_list_view, kinds.is_large_list_view)
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError)
"""What arrow raises where values are not what their type says; a KeyError is of a map with a key twice."""


def readable_schema(name: str, schema: pa.Schema) -> pa.Schema:
    """The schema that batches are cast to. DataError for columns of one name, or of a type without a word in JSON."""
    if twice := sorted({column for column in schema.names if schema.names.count(column) > 1}):
        raise DataError(f"{name}: two columns are called {', '.join(map(repr, twice))}")
    fields = []
    for field in schema:
        found = _readable(field.type)
        if found is None:
            raise DataError(
                f"{name}: column {field.name!r} is of type {field.type}, for which JSON has no word; "
                "write the file without it, or with it as text"
            )
        fields.append(pa.field(field.name, found))
    return pa.schema(fields)


def batch_rows(name: str, batch: pa.RecordBatch, schema: pa.Schema, *, first: int) -> Iterator[Row]:
    """Rows of a batch of valid arrays, the first called `name:first`, a few hundred at most.

    One whose values can't be read is a Skip that says why.
    """
    try:
        records = _records(batch, schema)
    except RowError:  # of one of them, or of several
        records = None
    for place in range(batch.num_rows):
        source = f"{name}:{first + place}"
        if records is not None:
            yield source, records[place]
            continue
        try:
            yield source, _records(batch.slice(place, 1), schema)[0]
        except RowError as error:
            yield source, Skip(str(error), source)


def _readable(kind: pa.DataType) -> pa.DataType | None:
    """What values of a type are read as; None where there is nothing."""
    if any(holds(kind) for holds in _PLAIN):
        return kind
    if any(holds(kind) for holds in _TEXT):
        return pa.large_string()
    if kinds.is_float16(kind):
        return pa.float32()
    if kinds.is_decimal(kind):
        return pa.float64() if kind.precision <= _EXACT_DIGITS else pa.large_string()
    if kinds.is_dictionary(kind):
        return _readable(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _readable(kind.storage_type)
    return _readable_nested(kind)


def _readable_nested(kind: pa.DataType) -> pa.DataType | None:
    if kinds.is_struct(kind):
        fields = [(field.name, _readable(field.type)) for field in kind]
        if all(found == field.type for (_, found), field in zip(fields, kind, strict=True)):
            return kind
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    if any(holds(kind) for holds in (*_LISTS, *_LIST_VIEWS)):
        item = _readable(kind.value_type)
        if item == kind.value_type:
            return kind
        is_view = any(holds(kind) for holds in _LIST_VIEWS)  # arrow 26 loses values when it casts these
        return None if item is None or is_view else pa.large_list(item)
    if kinds.is_map(kind):
        item = _readable(kind.item_type)
        return None if item is None else pa.map_(pa.large_string(), item)
    return None


def _records(batch: pa.RecordBatch, schema: pa.Schema) -> list[dict[str, Any]]:
    """RowError where a value has no word in JSON."""
    if batch.schema.types != schema.types:  # a slice is cast with all that lies under it: take its own first
        batch = batch.take(pa.array(range(batch.num_rows)))
    columns = [_column(column, field) for column, field in zip(batch.columns, schema, strict=True)]
    as_objects = "strict" if any(_holds(field.type, kinds.is_map) for field in schema) else None  # ten times as slow
    try:
        readable = pa.RecordBatch.from_arrays(columns, schema=schema)
        records: list[dict[str, Any]] = readable.to_pylist(maps_as_pydicts=as_objects)
    except _FAULTS as error:
        raise RowError(f"can't be read: {_one_line(error)}") from error
    for field in schema:
        if _holds(field.type, kinds.is_floating):
            for record in records:
                _check_finite(field.name, record[field.name])
    return records


def _column(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except _FAULTS as error:
        raise RowError(f"can't be read: column {field.name!r}: {_one_line(error)}") from error


def _holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    if wanted(kind):
        return True
    if kinds.is_map(kind):
        return _holds(kind.item_type, wanted)
    if kinds.is_struct(kind):
        return any(_holds(field.type, wanted) for field in kind)
    return any(holds(kind) for holds in (*_LISTS, *_LIST_VIEWS)) and _holds(kind.value_type, wanted)


def _check_finite(column: str, value: Any) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RowError(f"a number that is not finite: {value} in column {column!r}")
    elif isinstance(value, list):
        for item in value:
            _check_finite(column, item)
    elif isinstance(value, dict):
        for item in value.values():
            _check_finite(column, item)


def _one_line(error: Exception) -> str:
    text = error.args[0] if isinstance(error, KeyError) else error  # a KeyError's own text is a repr
    return " ".join(str(text).split())
