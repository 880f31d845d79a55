"""Solution of exercise 06.1: Chunks, and the order of a step.

`add_prefill` decides how many tokens of one prompt the step computes, and adds them to it. With
`self.enable_chunked_prefill` that is the next chunk: never more tokens than are left of the
step's budget, and never more than `self.chunked_prefill_size`, unless that is None. Without it,
it is the whole rest of the prompt, or nothing if that exceeds what is left of the budget and
another prompt is in the step already. `schedule` puts the step together: one token for each
request that decodes, then the prompts under way, then new requests by `admit`, unless a request
had to be preempted.

Generated from Scheduler.schedule, Scheduler.add_prefill in yaie/engine/scheduler.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.engine import scheduler as reference
from yaie.engine.request import Request
from yaie.engine.scheduler import Step


class Scheduler(reference.Scheduler):
    def schedule(self) -> Step:
        """Put the next step together: decode first, then prompts under way, then new requests.

        A request that decodes needs one token of the budget, and its reader is waiting for it: so
        no prompt, however long, can hold it up. After a preemption no request is admitted.
        """
        step, prefilling = Step(), []
        for request in self.running:  # `grow` preempts from the end, never one passed here
            if not request.is_decoding:
                prefilling.append(request)
            elif self.grow(request, step):
                step.add(request, 1)
        for request in prefilling:
            self.add_prefill(request, step)
        if not step.preempted:  # otherwise even the running requests lacked blocks
            self.admit(step)
        return step

    def add_prefill(self, request: Request, step: Step) -> None:
        """Schedule the next chunk of a prompt: the least of what is left of the prompt, of the
        step's budget, and of `chunked_prefill_size`.

        Without chunked prefill, the rest of the prompt or nothing: a prompt that exceeds what is
        left of the budget waits for a step in which it is the only prompt.
        """
        budget = self.max_num_batched_tokens - step.total_tokens
        wanted = request.num_new_tokens
        if self.enable_chunked_prefill:
            wanted = min(wanted, budget, self.chunked_prefill_size or wanted)
        elif wanted > budget and any(not r.is_decoding for r in step.scheduled):
            return
        step.add(request, wanted)
