"""Frees the blocks, but leaves the prefix locked in the cache."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "stays locked in the cache"


class Scheduler(reference.Scheduler):
    def finish(self, request, reason):
        if request.status is Status.RUNNING:
            self.kv.free_blocks(request.request_id)
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        request.status = Status.FINISHED
        request.finish_reason = reason
