"""Exercise 06.2: Admit a request, if there are blocks for it.

Find what the cache has of a waiting request, make room for the rest, and let it run. If there is
no room, leave everything as it was and return False. `admit` calls this method for the requests
of the queue in their order, and takes each request that runs out of `waiting`.

You have
- `request.key`: its tokens in the form that the cache compares, generated ones included
- `request.request_id`, `request.token_ids`: its name in `self.kv`; the list of its tokens,
  likewise
- `request.namespace`: requests of different namespaces share nothing
- `self.cache.match(key, namespace)`: what the cache has of the beginning: `.node` to lock,
  `.length` in tokens, `.values` the blocks; the key `""` matches nothing
- `self.cache.lock(node)`, `self.cache.unlock(node)`: keep a prefix from eviction, and take that
  back
- `self.cache.make_room(num_blocks)`: evicts until this many blocks are free; False, and nothing
  evicted, if that cannot be
- `blocks_needed(num_tokens, block_size)`: how many blocks hold them; `self.kv.block_size` is the
  size
- `self.kv.allocate_blocks(request_id, num_tokens, prefix_blocks)`: makes the block table: the
  shared blocks first, new ones for the rest
- `self.enable_prefix_caching`: whether cached prefixes may be used
- `self.running`: the list of requests that have blocks; append this one
- `request.node`, `request.num_computed_tokens`, `request.status`: to be set: the locked node, how
  many tokens have keys and values, `Status.RUNNING`
- `request.metrics`: `.num_preemptions`, and `.num_cached_tokens`, to be set when the request is
  admitted for the first time

In a terminal: yaie check 06.2, yaie hint 06.2, yaie reset 06.2.
What this file does not define is inherited from yaie/engine/scheduler.py.
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
        raise NotImplementedError("Exercise 06.2: Admit a request, if there are blocks for it")
