"""Leaves an aborted request in the queue."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "would be admitted later"


class Scheduler(reference.Scheduler):
    def finish(self, request, reason):
        if request.status is Status.RUNNING:
            self._leave(request)
        request.status = Status.FINISHED
        request.finish_reason = reason
