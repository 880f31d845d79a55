"""Solution of exercise 06.4: End a request, wherever it is.

A request has its last token, or its user went away. It may be running or still waiting. Give back
what it holds, and record why it ended.

Generated from Scheduler.finish in yaie/engine/scheduler.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Request, Status


class Scheduler(reference.Scheduler):
    def finish(self, request: Request, reason: str) -> None:
        """End a request, wherever it is: its blocks go to the cache or back to the pool."""
        if request.status is Status.RUNNING:
            self._leave(request)
        elif request.status is Status.WAITING:
            self.waiting.remove(request)
        request.status = Status.FINISHED
        request.finish_reason = reason
