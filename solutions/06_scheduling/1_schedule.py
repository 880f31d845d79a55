"""Solution of exercise 06.1: Put one step together.

Decide who computes how many tokens in the next step: first one token for each request that
decodes, then the prompts under way, then new requests unless a request had to be preempted.
`grow`, `_add_prefill` and `admit` do the parts; the order is yours.

Generated from Scheduler.schedule in yaie/engine/scheduler.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Status
from yaie.engine.scheduler import Step


class Scheduler(reference.Scheduler):
    def schedule(self) -> Step:
        """Put the next step together: decode first, then prompts under way, then new requests.

        A request that decodes needs one token of the budget, and its reader is waiting for it: so
        no prompt, however long, can hold it up. After a preemption no request is admitted.
        """
        step = Step()
        decoding = [request for request in self.running if request.is_decoding]
        prefilling = [request for request in self.running if not request.is_decoding]
        for request in decoding:
            if request.status is Status.RUNNING and self.grow(request, step):
                step.add(request, 1)
        for request in prefilling:
            if request.status is Status.RUNNING:
                self._add_prefill(request, step)
        if not step.preempted:  # otherwise even the running requests lacked blocks
            self.admit(step)
        return step
