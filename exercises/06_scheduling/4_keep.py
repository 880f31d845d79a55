"""Exercise 06.4: What stays in the cache, and how a request ends.

`keep` puts the full blocks of a running request's first `num_tokens` tokens into the cache, by
default of all that are computed, and locks them there instead of what was locked before. Others
can share them from then on. Where the cache has other blocks for the same tokens, the request
goes on with those: its table names them, and its own are released. `finish` ends a request that
runs or waits: what it holds goes back, and the reason is recorded.

In a terminal: yaie check 06.4, yaie hint 06.4, yaie reset 06.4.
What this file does not define is inherited from yaie/engine/scheduler.py.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Request, Status


class Scheduler(reference.Scheduler):
    def keep(self, request: Request, num_tokens: int | None = None) -> None:
        """Put the full blocks of a running request's first `num_tokens` tokens, by default all that
        are computed, into the cache, and lock them there.

        Where the cache has other blocks for the same tokens, the request continues with those: they
        are locked in any case, and its own would hold the same keys and values a second time.
        """
        raise NotImplementedError("Exercise 06.4: What stays in the cache, and how a request ends")

    def finish(self, request: Request, reason: str) -> None:
        """End a request, wherever it is: its blocks go to the cache or back to the pool."""
        raise NotImplementedError("Exercise 06.4: What stays in the cache, and how a request ends")
