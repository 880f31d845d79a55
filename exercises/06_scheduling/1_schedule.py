"""Exercise 06.1: Chunks, and the order of a step.

`add_prefill` decides how many tokens of one prompt the step computes, and adds them to it. With
`self.enable_chunked_prefill` that is the next chunk: never more tokens than are left of the
step's budget, and never more than `self.chunked_prefill_size`, unless that is None. Without it,
it is the whole rest of the prompt, or nothing if that exceeds what is left of the budget and
another prompt is in the step already. `schedule` puts the step together: one token for each
request that decodes, then the prompts under way, then new requests by `admit`, unless a request
had to be preempted.

You have
- `Step()`: an empty step
- `step.add(request, num_tokens)`: lets a request compute its next tokens in the step; the request
  itself does not change
- `step.scheduled`: the list of requests that were added
- `step.total_tokens`: how many tokens they compute together
- `step.preempted`: the list of requests that lost their blocks in this step
- `self.max_num_batched_tokens`: the budget, in tokens per step; never less than the number of
  running requests
- `self.running`: the list of requests that have blocks, in the order of their admission
- `request.is_decoding`: whether only its newest, generated token is left to compute
- `request.num_new_tokens`: how many of its tokens have no keys and values yet
- `request.status`: `Status.RUNNING`, or `Status.WAITING` once it was preempted
- `self.grow(request, step)`: makes a slot for a decoding request's token; returns whether the
  request still runs. To find a block it may preempt the request admitted last, then the one
  before it, in the end this one
- `self.admit(step)`: starts waiting requests while there are batch slots, budget and blocks, and
  calls `add_prefill` for each

In a terminal: yaie check 06.1, yaie hint 06.1, yaie reset 06.1.
What this file does not define is inherited from yaie/engine/scheduler.py.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Request, Status
from yaie.engine.scheduler import Step


class Scheduler(reference.Scheduler):
    def schedule(self) -> Step:
        """Put the next step together: decode first, then prompts under way, then new requests.

        A request that decodes needs one token of the budget, and its reader is waiting for it: so
        no prompt, however long, can hold it up. After a preemption no request is admitted.
        """
        raise NotImplementedError("Exercise 06.1: Chunks, and the order of a step")

    def add_prefill(self, request: Request, step: Step) -> None:
        """Schedule the next chunk of a prompt: the least of what is left of the prompt, of the
        step's budget, and of `chunked_prefill_size`.

        Without chunked prefill, the rest of the prompt or nothing: a prompt that exceeds what is
        left of the budget waits for a step in which it is the only prompt.
        """
        raise NotImplementedError("Exercise 06.1: Chunks, and the order of a step")
