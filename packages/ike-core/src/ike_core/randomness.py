"""Random numbers as functions of what they are for, not states: resuming restores nothing.

The mixing function is the finalizer of SplitMix64 (Steele, Lea and Flood 2014), applied to each word in turn.
"""

from hashlib import blake2b

_MASK = (1 << 64) - 1
START = 0x9E3779B97F4A7C15
"""`mix()` of no word."""


def mix(*words: int) -> int:
    """64 bits that depend on every bit of every word (each taken modulo 2^64) and on their order."""
    state = START
    for word in words:
        state = absorb(state, word)
    return state


def absorb(state: int, word: int) -> int:
    """One word of `mix`: mix(a, b) is absorb(mix(a), b)."""
    state = (state ^ (word & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
    return state ^ state >> 31


def key(text: str) -> int:
    """64 bits of a name, alike in every process and on every machine."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def uniform(*words: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    return (mix(*words) >> 11) * 2.0**-53
