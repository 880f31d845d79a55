"""Admits a waiting request in the step in which another one lost its blocks."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status
from yaie.engine.scheduler import Step

EXPECT = "admit nobody then"


class Scheduler(reference.Scheduler):
    def schedule(self):
        step = Step()
        decoding = [request for request in self.running if request.is_decoding]
        prefilling = [request for request in self.running if not request.is_decoding]
        for request in decoding:
            if request.status is Status.RUNNING and self.grow(request, step):
                step.add(request, 1)
        for request in prefilling:
            if request.status is Status.RUNNING:
                self._add_prefill(request, step)
        self.admit(step)
        return step
