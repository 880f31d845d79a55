"""Frees the blocks, but leaves the prefix locked in the cache."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "still holds a node of the cache"


class Scheduler(reference.Scheduler):
    def preempt(self, request):
        self.kv.free_blocks(request.request_id)
        self.running.remove(request)
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)
