"""Exercise 06.4: What stays in the cache, and how a request ends.

`keep` puts the full blocks of a running request's first `num_tokens` tokens (by default all that
are computed) into the cache, and locks them there instead of what was locked before. Where the
cache has other blocks for the same tokens, the request goes on with those: its table names them,
and its own are released. `finish` ends a request that runs or waits: what it holds goes back, and
the reason is recorded.

You have
- `self.enable_prefix_caching`, `request.error`: nothing is kept if the first is off, or the
  second is set because keys and values are wrong
- `request.key`, `request.namespace`: its tokens as the cache takes them, which can be sliced like
  a list; the namespace, which every call that names tokens needs
- `self.kv.block_tables[request.request_id]`: the list of its blocks, which you may change
- `self.kv.block_size`: tokens per block
- `self.cache.insert(key, blocks, namespace)`: keeps the full blocks, as one user of each; where
  it has others for the same tokens, it keeps its own. Returns the node at which they end
- `node.path_values()`: the cache's blocks from the first token to that node
- `self.cache.lock(node)`, `self.cache.unlock(node)`: keep a prefix from eviction, and take one
  lock back
- `self.kv.pool.share(blocks)`, `self.kv.pool.release(blocks)`: one user more, one less, of each
  block
- `request.node`, `request.num_computed_tokens`, `request.num_kept_tokens`: the node that is
  locked; how many tokens have keys and values; how many tokens `keep` has kept, 0 before its
  first call, even if the node ends a prefix that the cache had
- `self.cache.extend(node, key, blocks)`: a short cut, which you may leave out: appends only new
  tokens to a locked node; False, and nothing changed, if it cannot
- `self.leave(request)`: gives up all that a running request holds; calls `keep`
- `self.waiting`: the deque of requests without blocks
- `request.status`, `request.finish_reason`: `Status.RUNNING`, `Status.WAITING` or
  `Status.FINISHED`; why it ended

In a terminal: yaie check 06.4, yaie hint 06.4, yaie reset 06.4.
What this file does not define is inherited from yaie/engine/scheduler.py.
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
        raise NotImplementedError("Exercise 06.4: What stays in the cache, and how a request ends")

    def finish(self, request: Request, reason: str) -> None:
        """End a request, wherever it is: its blocks go to the cache or back to the pool."""
        raise NotImplementedError("Exercise 06.4: What stays in the cache, and how a request ends")
