"""Solution of exercise 06.3: Preempt a request without losing its tokens.

Take a running request's blocks away, and put it where it is admitted again as soon as there is
room. What it has generated stays. You have `self._leave(request)`, which gives up its blocks, its
lock and its place among `running`, and hands what is computed to the cache.

Generated from Scheduler.preempt in yaie/engine/scheduler.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Request, Status


class Scheduler(reference.Scheduler):
    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it waits in front, to be computed again.

        It keeps its generated tokens: when it is admitted again, they are part of what is
        computed, and what the cache still holds of it is found there.
        """
        self._leave(request)
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)
