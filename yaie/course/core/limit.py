"""A time limit for code that may never end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 4  # times the limit, for a process that others keep from computing


class TimeUp(BaseException):
    """Not an Exception, so that the limited code's own `except Exception` does not swallow it."""


def can_limit() -> bool:
    """Only the main thread hears alarms, and only where the system has them."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in the main thread after `seconds`, then every second until it gets out.

    A process that computed for less than half of that, since others had the processor or it waits
    for a compiler, has `PATIENCE` times as long.

    An alarm that was set before is set again afterwards, less the time that has passed.
    Where there is no alarm there is no limit: see `can_limit`.
    """
    if not can_limit():
        yield
        return

    began, computed = time.monotonic(), time.process_time()

    def ring(*_: Any) -> None:
        waited = time.process_time() - computed < seconds / 2
        if not waited or time.monotonic() - began >= PATIENCE * seconds:
            raise TimeUp

    handler = signal.signal(signal.SIGALRM, ring)
    earlier, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if earlier:
            left = max(0.001, earlier - (time.monotonic() - began))
            signal.setitimer(signal.ITIMER_REAL, left, interval)
