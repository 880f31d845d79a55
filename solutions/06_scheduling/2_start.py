"""Solution of exercise 06.2: Admit a request, if there are blocks for it.

Find what the cache has of a waiting request, make room for the rest, and let it run. If there is
no room, leave everything as it was and return False. `admit` calls this method for the requests
of the queue in their order, and takes each request that runs out of `waiting`.

Generated from Scheduler.start in yaie/engine/scheduler.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.kv_cache import blocks_needed
from yaie.engine.request import Request, Status


class Scheduler(reference.Scheduler):
    def start(self, request: Request) -> bool:
        """Give a waiting request its cached prefix and blocks for the rest of its tokens.

        The prefix is locked before blocks are counted: until then, the blocks that it is about to
        share look as if they could be evicted.

        Returns:
            Whether it runs now. If not, nothing was taken.
        """
        found = self.cache.match(
            request.key if self.enable_prefix_caching else "", request.namespace
        )
        self.cache.lock(found.node)
        missing = blocks_needed(len(request.token_ids), self.kv.block_size) - len(found.values)
        if not self.cache.make_room(missing):
            self.cache.unlock(found.node)
            return False
        self.kv.allocate_blocks(request.request_id, len(request.token_ids), found.values)
        request.node = found.node
        request.num_computed_tokens = found.length
        if request.metrics.num_preemptions == 0:
            request.metrics.num_cached_tokens = found.length
        request.status = Status.RUNNING
        self.running.append(request)
        return True
