"""Schedules a token without making room for it."""

from yaie.engine import scheduler as reference
from yaie.engine.scheduler import Step

EXPECT = "needs a slot before it is computed"


class Scheduler(reference.Scheduler):
    def schedule(self):
        step = Step()
        for request in self.running:
            if request.is_decoding:
                step.add(request, 1)
        for request in self.running:
            if not request.is_decoding:
                self._add_prefill(request, step)
        self.admit(step)
        return step
