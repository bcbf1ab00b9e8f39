"""Memory does not grow with the file: what Python and arrow hold while it is read, far less than it has."""

import csv
import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from ike_data.rows import read_rows

MEBIBYTE = 1 << 20
ROWS = 16_000
"""Of 1,000 letters: 16 MB."""


def texts() -> Iterator[str]:
    random = Random(17)
    return (random.randbytes(500).hex() for _ in range(ROWS))


def write_lines(path: Path) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts()))


def write_array(path: Path) -> None:
    path.write_text(json.dumps([{"text": text} for text in texts()]))  # all on one line


def write_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in texts()).encode(), 1))


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["text"], *([text] for text in texts())])


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": list(texts())}), path, row_group_size=ROWS)  # one row group


def write_arrow(path: Path) -> None:
    table = pa.table({"text": list(texts())})
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)  # one batch


WRITERS: dict[str, Callable[[Path], None]] = {
    "a.jsonl": write_lines,
    "a.json": write_array,
    "a.jsonl.gz": write_gzip,
    "a.csv": write_csv,
    "a.parquet": write_parquet,
    "a.arrow": write_arrow,
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_more_than_a_piece_of_a_file_is_held(tmp_path, name) -> None:
    WRITERS[name](tmp_path / name)
    arrow_before, arrow_peak, rows = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    try:
        for _ in read_rows([str(tmp_path / name)]):
            rows += 1
            arrow_peak = max(arrow_peak, pa.total_allocated_bytes() - arrow_before)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == ROWS
    assert python_peak < 8 * MEBIBYTE
    assert arrow_peak < 8 * MEBIBYTE
