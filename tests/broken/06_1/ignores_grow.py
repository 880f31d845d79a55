"""Ignores that `grow` preempted the request itself."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status
from yaie.engine.scheduler import Step

EXPECT = "`grow` returns whether the request still runs"


class Scheduler(reference.Scheduler):
    def schedule(self):
        step = Step()
        decoding = [request for request in self.running if request.is_decoding]
        prefilling = [request for request in self.running if not request.is_decoding]
        for request in decoding:
            if request.status is Status.RUNNING:
                self.grow(request, step)
                step.add(request, 1)
        for request in prefilling:
            if request.status is Status.RUNNING:
                self._add_prefill(request, step)
        if not step.preempted:
            self.admit(step)
        return step
