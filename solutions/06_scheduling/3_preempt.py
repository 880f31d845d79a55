"""Solution of exercise 06.3: Preempt: which request leaves, and what stays.

Three methods that call each other. `grow` makes sure that the newest token of a request that
decodes has a slot. If that needs a block and none can be had, it preempts the request that was
admitted last, appends it to `step.preempted`, and tries again; if the last was the request
itself, `grow` returns False. `preempt` makes a running request wait in front of all others, to be
computed again from its tokens. `leave` gives up everything that a running request holds; what it
has computed stays in the cache as long as there is room.

Generated from Scheduler.grow, Scheduler.preempt, Scheduler.leave in yaie/engine/scheduler.py.
Edit it there, and run `python -m yaie.course build`.
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
        length, size = self.kv.lengths[request.request_id], self.kv.block_size
        if len(request.token_ids) <= length:
            return True
        while length % size == 0 and not self.cache.make_room(1):
            victim = self.running[-1]
            self.preempt(victim)
            step.preempted.append(victim)
            if victim is request:
                return False
        self.kv.append_tokens(request.request_id, size - length % size)
        return True

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it waits in front, to be computed again.

        It keeps its generated tokens: when it is admitted again, they are part of what is
        computed, and what the cache still holds of it is found there.
        """
        self.leave(request)
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)

    def leave(self, request: Request) -> None:
        """Release everything that a running request holds."""
        self.keep(request)
        self.kv.free_blocks(request.request_id)
        node, request.node, request.num_kept_tokens = request.node, None, 0
        self.cache.unlock(node)
        self.running.remove(request)
        if request.error:
            self.cache.drop(node)
