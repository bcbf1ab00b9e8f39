"""Files in gzip, zstd, xz and bzip2: known by their bytes, whole to the last one, or an error with the line."""

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest

from ike_core import DataError
from ike_data.rows import read_rows


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstd,
    ".zstd": zstd,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda packed: zlib.decompressobj(31).decompress(packed),
    ".xz": lambda packed: lzma.LZMADecompressor().decompress(packed),
    ".bz2": lambda packed: bz2.BZ2Decompressor().decompress(packed),
}
"""What there is of a stream that was cut, by the standard library."""
ROWS = [{"n": n, "text": f"{n * 7919 % 10007} é\u2028 {'x' * (n % 50)}"} for n in range(3000)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
SAME = {
    "jsonl": LINES,
    "json": json.dumps(ROWS).encode(),
    "csv": b"n,text\n" + b"".join(f"{row['n']},{row['text']}\n".encode() for row in ROWS),
    "tsv": b"n\ttext\n" + b"".join(f"{row['n']}\t{row['text']}\n".encode() for row in ROWS),
}


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("kind", SAME)
def test_every_format_reads_alike_in_every_compression(write, kind, suffix) -> None:
    read = list(read_rows([write(f"a.{kind}{suffix}", PACK[suffix](SAME[kind]))]))
    assert [(int(row["n"]), row["text"]) for _, row in read] == [(row["n"], row["text"]) for row in ROWS]
    assert [source.partition(":")[0] for source, _ in read] == [f"a.{kind}{suffix}"] * len(ROWS)


@pytest.mark.parametrize("suffix", PACK)
def test_the_bytes_tell_what_a_name_does_not(write, suffix) -> None:
    assert len(list(read_rows([write("a.jsonl", PACK[suffix](LINES))]))) == 3000


@pytest.mark.parametrize("suffix", PACK)
def test_members_that_follow_one_another_are_one_text(write, suffix) -> None:
    middle = len(LINES) // 2  # within a line
    file = write(f"a.jsonl{suffix}", PACK[suffix](LINES[:middle]) + PACK[suffix](b"") + PACK[suffix](LINES[middle:]))
    assert [row for _, row in read_rows([file])] == ROWS


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("cut", [8, 1000])
def test_a_cut_stream_gives_what_it_has_and_then_an_error_with_the_line(write, suffix, cut) -> None:
    """The rows are those that the standard library finds in what is left."""
    packed = PACK[suffix](LINES)[:-cut]
    rows = []
    with pytest.raises(DataError, match=r"^a\.jsonl\.\w+:\d+: the \w+ stream breaks here: ") as raised:
        rows.extend(read_rows([write(f"a.jsonl{suffix}", packed)]))
    assert [row for _, row in rows] == ROWS[: len(rows)]
    assert str(raised.value).split(":")[1] == str(len(rows) + 1)
    if suffix in UNPACK:
        assert len(rows) == UNPACK[suffix](packed).count(b"\n")


@pytest.mark.parametrize("suffix", PACK)
def test_what_follows_the_last_member_is_not_passed_over(write, suffix) -> None:
    rows = []
    with pytest.raises(DataError, match=r"a\.jsonl\.\w+:3001: the \w+ stream breaks here"):
        rows.extend(read_rows([write(f"a.jsonl{suffix}", PACK[suffix](LINES) + b"and so on")]))
    assert len(rows) == 3000


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_damaged_stream_is_an_error(write, suffix) -> None:
    """Both keep a checksum of the text."""
    packed = bytearray(PACK[suffix](LINES))
    packed[len(packed) // 2] ^= 1
    with pytest.raises(DataError, match=r"a\.jsonl\.\w+:\d+: "):
        list(read_rows([write(f"a.jsonl{suffix}", bytes(packed))]))
