"""Begins again from the prompt alone."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status

EXPECT = "The generated tokens are lost"


class Scheduler(reference.Scheduler):
    def preempt(self, request):
        self._leave(request)
        del request.token_ids[request.num_prompt_tokens :]
        request.num_computed_tokens = 0
        request.metrics.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)
