"""Sends the request to the end of the queue."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "At the back"


class Scheduler(reference.Scheduler):
    def preempt(self, request):
        self._leave(request)
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.append(request)
