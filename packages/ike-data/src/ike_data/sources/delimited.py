"""Rows of CSV and TSV: a header, and as many cells a row.

RFC 4180: cells with the delimiter, a quote or a line end in them are quoted, quotes in them doubled. The delimiter is
the one the name says, never guessed. Every cell is text: a file that knows numbers and nulls is JSON lines or Parquet.
"""

import csv
from collections import Counter
from collections.abc import Iterator

import attrs

from ike_core.errors import DataError
from ike_core.examples import Skip
from ike_data.sources.broken import BrokenFileError
from ike_data.sources.formats import Format
from ike_data.sources.limits import LONGEST_ROW, check_row
from ike_data.sources.lines import whole_lines
from ike_data.sources.paths import SourceFile
from ike_data.sources.row import Row

_OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


def csv_rows(file: SourceFile) -> Iterator[Row]:
    """Rows whose cells are separated by commas; each is named by the line it starts on."""
    return _rows(file, Format.CSV, ",")


def tsv_rows(file: SourceFile) -> Iterator[Row]:
    """Rows whose cells are separated by tabs; each is named by the line it starts on."""
    return _rows(file, Format.TSV, "\t")


def _rows(file: SourceFile, expected: Format, delimiter: str) -> Iterator[Row]:
    records = _records(file, expected, delimiter)
    header: list[str] = []
    for line, cells, is_utf8 in records:
        if not header:
            header = cells
            _check_header(f"{file.name}:{line}", header, delimiter, is_utf8=is_utf8)
            continue
        source = f"{file.name}:{line}"
        if reason := _fault(header, cells, is_utf8=is_utf8):
            yield source, Skip(reason, source)
        else:
            yield source, dict(zip(header, cells, strict=True))


def _records(file: SourceFile, expected: Format, delimiter: str) -> Iterator[tuple[int, list[str], bool]]:
    """(line it starts on, its cells, whether they are UTF-8) of every record that is no blank line.

    DataError at a quote that closes wrongly or never: no one can tell there where the record ends.
    """
    csv.field_size_limit(
        max(LONGEST_ROW, csv.field_size_limit())
    )  # of the process: Python has no other, and its 128 KiB are less than a document
    lines = _Lines(whole_lines(file, expected))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.begin_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except (csv.Error, BrokenFileError) as error:
            raise DataError(f"{file.name}:{lines.first}: {_quote(error, lines)}") from error
        if cells:
            yield lines.first, cells, lines.is_utf8


@attrs.define
class _Lines:
    """Lines as `csv` takes them. Bytes that are not UTF-8 pass as half surrogates, so that only their row is lost."""

    lines: Iterator[tuple[int, bytes]]
    first: int = 0
    """Line that the record starts on; 0 before it has one."""
    last: int = 0
    size: int = 0
    """Bytes of the record so far."""
    is_utf8: bool = True
    """Whether all of them are."""

    def begin_record(self) -> None:
        self.first = self.size = 0
        self.is_utf8 = True

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        self.last, line = next(self.lines)
        self.first = self.first or self.last
        self.size += len(line)
        check_row(self.size, "the row")
        try:
            return line.decode() + "\n"
        except UnicodeDecodeError:
            self.is_utf8 = False
            return line.decode(errors="surrogateescape") + "\n"


def _quote(error: Exception, lines: _Lines) -> str:
    if isinstance(error, BrokenFileError):
        return str(error)
    if "unexpected end of data" in str(error):
        return f"a quote opens in this row and is not closed by the end of the file (line {lines.last})"
    if "new-line character" in str(error):
        return "a carriage return inside a cell that is not quoted"
    return f"a quote closes inside a cell, in this row at line {lines.last}: {error}; double the quotes of the text"


def _check_header(source: str, header: list[str], delimiter: str, *, is_utf8: bool) -> None:
    if not is_utf8:
        raise DataError(f"{source}: the header is not UTF-8; write the file as UTF-8")
    if twice := [repr(name) for name, count in Counter(header).items() if count > 1]:
        raise DataError(f"{source}: the header names {', '.join(twice)} twice")
    found = [name for other, name in _OTHERS.items() if other != delimiter and other in header[0]]
    if len(header) == 1 and found:
        raise DataError(
            f"{source}: the header is one column, {header[0]!r}: {found[0]} seem to separate its names, "
            f"and {_OTHERS[delimiter]} do in a file of this name; write it as .csv with commas or .tsv with tabs"
        )


def _fault(header: list[str], cells: list[str], *, is_utf8: bool) -> str:
    if len(cells) != len(header):
        return f"another number of cells: {len(cells)}, and the header has {len(header)}"
    if not is_utf8:
        return f"not UTF-8: {', '.join(_broken_places(header, cells))}"
    return ""


def _broken_places(header: list[str], cells: list[str]) -> Iterator[str]:
    for name, cell in zip(header, cells, strict=True):
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            yield f"byte {len(cell[: error.start].encode()) + 1} of column {name!r}"
