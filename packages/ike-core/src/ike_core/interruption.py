"""SIGINT and SIGTERM in a rank: it leaves its work in order, within seconds, and ends by the signal."""

import os
import signal
import socket
import sys
import threading
from types import FrameType

GRACE_SECONDS = 3.0
"""For partial files to be removed and trackers to be told. A rank that waits for another one inside a library can't be
interrupted, and gets no more either."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Raised in the main thread, wherever it is. Not an Exception: who expects errors does not expect this."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def raise_when_told() -> None:
    """From now on the first SIGINT or SIGTERM raises `Interrupted` in the main thread, which has to call this.

    A thread sees it too, also while the main one is inside a library, and ends the process GRACE_SECONDS later.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)  # as Python wants it
    signal.set_wakeup_fd(writing.detach())
    threading.Thread(target=_end_in_time, args=(reading,), name="interruption", daemon=True).start()
    for each in SIGNALS:
        signal.signal(each, _interrupt)
    os.register_at_fork(after_in_child=_forget)  # its pool stops a forked worker by SIGTERM: that is not about us


def end_by(signum: int) -> None:
    """Ends the process as the signal does where nobody handles it: who waits for it sees what it was."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _interrupt(signum: int, _: FrameType | None) -> None:
    for each in SIGNALS:  # once is enough
        signal.signal(each, lambda *_: None)
    raise Interrupted(signum)


def _end_in_time(signals: socket.socket) -> None:
    while signals.recv(1)[0] not in SIGNALS:  # of any signal that has a handler
        pass
    threading.Event().wait(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _forget() -> None:
    signal.set_wakeup_fd(-1)
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
