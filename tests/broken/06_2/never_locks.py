"""Shares a prefix without locking it."""

from yaie.engine import scheduler as reference
from yaie.engine.kv_cache import blocks_needed
from yaie.engine.request import Status

EXPECT = "must be locked once"


class Scheduler(reference.Scheduler):
    def start(self, request):
        tokens = request.token_ids if self.enable_prefix_caching else []
        found = self.cache.match(tokens, request.namespace)
        missing = blocks_needed(len(request.token_ids), self.kv.block_size) - len(found.values)
        if not self.cache.make_room(missing):
            return False
        self.kv.allocate_blocks(request.request_id, len(request.token_ids), found.values)
        request.node = found.node
        request.num_computed_tokens = found.length
        if request.metrics.num_preemptions == 0:
            request.metrics.num_cached_tokens = found.length
        request.status = Status.RUNNING
        self.running.append(request)
        return True
