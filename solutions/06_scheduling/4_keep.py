"""Solution of exercise 06.4: What stays in the cache, and how a request ends.

`keep` puts the full blocks of a running request's first `num_tokens` tokens (by default all that
are computed) into the cache, and locks them there instead of what was locked before. Where the
cache has other blocks for the same tokens, the request goes on with those: its table names them,
and its own are released. `finish` ends a request that runs or waits: what it holds goes back, and
the reason is recorded.

Generated from Scheduler.keep, Scheduler.finish in yaie/engine/scheduler.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Request, Status


class Scheduler(reference.Scheduler):
    def keep(self, request: Request, num_tokens: int | None = None) -> None:
        """Put the full blocks of a running request's first `num_tokens` tokens, by default all that
        are computed, into the cache, and lock them there.

        Where the cache has other blocks for the same tokens, the request continues with those: they
        are locked in any case, and its own would hold the same keys and values a second time.
        """
        if not self.enable_prefix_caching or request.error:
            return
        table, size = self.kv.block_tables[request.request_id], self.kv.block_size
        num_tokens = request.num_computed_tokens if num_tokens is None else num_tokens
        kept, end = request.num_kept_tokens, num_tokens // size * size
        request.num_kept_tokens = end
        first, last = kept // size, end // size
        if kept and self.cache.extend(request.node, request.key[kept:end], table[first:last]):
            return
        node = self.cache.insert(request.key[:end], table, request.namespace)
        self.cache.lock(node)
        self.cache.unlock(request.node)
        request.node = node
        ours, cached = table[first:last], node.path_values()[first:]
        self.kv.pool.share(cached)
        self.kv.pool.release(ours)  # most are the same, and keep as many users as they had
        table[first:last] = cached

    def finish(self, request: Request, reason: str) -> None:
        """End a request, wherever it is: its blocks go to the cache or back to the pool."""
        if request.status is Status.RUNNING:
            self.leave(request)
        elif request.status is Status.WAITING:
            self.waiting.remove(request)
        request.status = Status.FINISHED
        request.finish_reason = reason
