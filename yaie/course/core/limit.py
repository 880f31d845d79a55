"""A time limit for code that may never end."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 15  # times the limit, for code that waits: for a compiler, or for a busy processor


class TimeUp(BaseException):
    """Not an Exception, so that the limited code's own `except Exception` does not swallow it.

    Its text is the time that was used up, such as "20 s of computing".
    """


def can_limit() -> bool:
    """Only the main thread hears alarms, and only where the system has them."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in the main thread once it has computed for `seconds`, then again and again
    until it gets out.

    What compilers and other processes compute does not count. A thread that waits instead has
    `PATIENCE` times as long.

    An alarm that was set before is set again afterwards, less the time that has passed.
    Where there is no alarm there is no limit: see `can_limit`.
    """
    if not can_limit():
        yield
        return

    began, computed = time.monotonic(), time.thread_time()

    def ring(*_: Any) -> None:
        if time.thread_time() - computed >= seconds:
            raise TimeUp(f"{seconds:g} s of computing")
        if time.monotonic() - began >= PATIENCE * seconds:
            raise TimeUp(f"{PATIENCE * seconds:g} s")

    handler = signal.signal(signal.SIGALRM, ring)
    earlier, interval = signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 20)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if earlier:
            left = max(0.001, earlier - (time.monotonic() - began))
            signal.setitimer(signal.ITIMER_REAL, left, interval)
