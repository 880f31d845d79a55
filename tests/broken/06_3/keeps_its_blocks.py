"""Moves the request to the queue and leaves its blocks with it."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "it still has its blocks"


class Scheduler(reference.Scheduler):
    def preempt(self, request):
        self.running.remove(request)
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)
