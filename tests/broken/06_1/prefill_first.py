"""Gives the budget to prompts before those who decode."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status
from yaie.engine.scheduler import Step

EXPECT = "The prompt took the whole budget"


class Scheduler(reference.Scheduler):
    def schedule(self):
        step = Step()
        decoding = [request for request in self.running if request.is_decoding]
        for request in self.running:
            if not request.is_decoding:
                self._add_prefill(request, step)
        self.admit(step)
        for request in decoding:
            room = self._budget_left(step) > 0
            if room and request.status is Status.RUNNING and self.grow(request, step):
                step.add(request, 1)
        return step
