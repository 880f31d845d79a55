"""Lets go of the request altogether."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "It waits to be admitted again"


class Scheduler(reference.Scheduler):
    def preempt(self, request):
        self._leave(request)
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
