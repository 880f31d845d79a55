"""Takes new blocks for tokens that the cache holds."""

from yaie.engine import scheduler as reference
from yaie.engine.kv_cache import blocks_needed
from yaie.engine.request import Status

EXPECT = "pass the prefix on"


class Scheduler(reference.Scheduler):
    def start(self, request):
        tokens = request.token_ids if self.enable_prefix_caching else []
        found = self.cache.match(tokens, request.namespace)
        self.cache.lock(found.node)
        missing = blocks_needed(len(request.token_ids), self.kv.block_size)
        if not self.cache.make_room(missing):
            self.cache.unlock(found.node)
            return False
        self.kv.allocate_blocks(request.request_id, len(request.token_ids))
        request.node = found.node
        request.num_computed_tokens = found.length
        if request.metrics.num_preemptions == 0:
            request.metrics.num_cached_tokens = found.length
        request.status = Status.RUNNING
        self.running.append(request)
        return True
