"""Forgets that keys and values went with the blocks."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "all has to be computed again"


class Scheduler(reference.Scheduler):
    def preempt(self, request):
        self._leave(request)
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)
