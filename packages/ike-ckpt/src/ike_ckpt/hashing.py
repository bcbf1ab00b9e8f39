"""Hashes of what lies on disk: xxh3 of 128 bits, which finds damage at the speed of memory, and no forgery."""

from pathlib import Path

import xxhash

BLOCK_BYTES = 1 << 22
"""Read at once: small enough for the processor's cache, large enough for any disk."""


def hash_of(content: bytes | memoryview) -> str:
    """32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(content)


def hash_of_file(path: Path) -> str:
    """Of the whole file, read once."""
    running = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        block = bytearray(BLOCK_BYTES)
        while count := file.readinto(block):
            running.update(memoryview(block)[:count])
    return running.hexdigest()
