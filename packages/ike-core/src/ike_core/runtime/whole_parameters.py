"""Modules that are made whole while ZeRO-3 deals out the rest; the engine deals them out when it is built."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def whole_parameters() -> Iterator[None]:
    """Inside ZeRO-3's init context modules made here keep their parameters; elsewhere this does nothing.

    What is drawn for a parameter that was dealt out at once would be written into an empty tensor, in silence.
    """
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    if not is_deepspeed_zero3_enabled():
        yield
        return
    from deepspeed.runtime.zero.partition_parameters import restore_init_context, shutdown_init_context

    shutdown_init_context()
    try:
        yield
    finally:
        restore_init_context()
