"""Exercise 06.3: Preempt: which request leaves, and what stays.

Three methods that call each other. `grow` makes sure that the newest token of a request that
decodes has a slot. If that needs a block and none can be had, it preempts the request that was
admitted last, appends it to `step.preempted`, and tries again; if the last was the request
itself, `grow` returns False. `preempt` makes a running request wait in front of all others, to be
computed again from its tokens. `leave` gives up everything that a running request holds; what it
has computed stays in the cache as long as there is room.

You have
- `request.request_id`, `request.token_ids`: its name in `self.kv`; its tokens so far, prompt and
  generated
- `self.kv.lengths[request_id]`: how many slots it has, which may be more than it has tokens
- `self.kv.append_tokens(request_id, num_tokens)`: makes this many more slots, in new blocks once
  the last is full; raises OutOfBlocks if too few are free
- `self.kv.free_blocks(request_id)`: releases the request's blocks; those that the cache or others
  use stay
- `self.kv.block_size`: tokens per block
- `self.cache.make_room(num_blocks)`: evicts until this many blocks are free; False, and nothing
  evicted, if that cannot be
- `self.keep(request)`: puts the full blocks of its computed tokens into the cache, and locks them
  at `request.node`; needs the request's blocks; does nothing if `request.error` is set
- `self.cache.unlock(node)`, `self.cache.drop(node)`: takes one lock back; forgets the prefix that
  ends at an unlocked node
- `request.error`: None, or its keys and values are wrong, and so is its prefix in the cache
- `request.num_computed_tokens`, `request.num_kept_tokens`: tokens with keys and values; those
  that the cache has
- `request.metrics.num_preemptions`: how often it was preempted
- `request.status`: `Status.RUNNING` or `Status.WAITING`
- `self.running`, `self.waiting`: a list in the order of admission; a deque whose first is
  admitted next; both are changed in place, since `schedule` walks along `running` meanwhile

In a terminal: yaie check 06.3, yaie hint 06.3, yaie reset 06.3.
What this file does not define is inherited from yaie/engine/scheduler.py.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Request, Status
from yaie.engine.scheduler import Step


class Scheduler(reference.Scheduler):
    def grow(self, request: Request, step: Step) -> bool:
        """Make sure that the newest token of a running request has a slot.

        Slots are made up to the end of a block, so that the tokens that follow have theirs already.
        If no block is free or can be evicted, the request admitted last is preempted, in the end
        this one itself. As a rule the last has the least to lose, and the requests that came first
        finish first and free their blocks for the rest.

        Returns:
            Whether the request still runs.
        """
        raise NotImplementedError("Exercise 06.3: Preempt: which request leaves, and what stays")

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it waits in front, to be computed again.

        It keeps its generated tokens: when it is admitted again, they are part of what is
        computed, and what the cache still holds of it is found there.
        """
        raise NotImplementedError("Exercise 06.3: Preempt: which request leaves, and what stays")

    def leave(self, request: Request) -> None:
        """Release everything that a running request holds."""
        raise NotImplementedError("Exercise 06.3: Preempt: which request leaves, and what stays")
