"""Adds requests that were preempted while the step was put together."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status
from yaie.engine.scheduler import Step

EXPECT = "Look at a request's `status` again"


class Scheduler(reference.Scheduler):
    def schedule(self):
        step = Step()
        decoding = [request for request in self.running if request.is_decoding]
        prefilling = [request for request in self.running if not request.is_decoding]
        for request in decoding:
            if request.status is Status.RUNNING and self.grow(request, step):
                step.add(request, 1)
        for request in prefilling:
            self._add_prefill(request, step)
        if not step.preempted:
            self.admit(step)
        return step
