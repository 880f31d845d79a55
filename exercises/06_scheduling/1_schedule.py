"""Exercise 06.1: Put one step together.

Decide who computes how many tokens in the next step: first one token for each request that
decodes, then the prompts under way, then new requests unless a request had to be preempted.
`grow`, `_add_prefill` and `admit` do the parts; the order is yours.

In a terminal: yaie check 06.1, yaie hint 06.1, yaie reset 06.1.
What this file does not define is inherited from yaie/engine/scheduler.py.
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
        raise NotImplementedError("Exercise 06.1: Put one step together")
