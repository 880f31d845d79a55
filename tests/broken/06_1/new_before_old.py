"""Admits new requests before the prompts under way go on."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status
from yaie.engine.scheduler import Step

EXPECT = "admitted before the old went on"


class Scheduler(reference.Scheduler):
    def schedule(self):
        step = Step()
        running = list(self.running)
        for request in [request for request in running if request.is_decoding]:
            if request.status is Status.RUNNING and self.grow(request, step):
                step.add(request, 1)
        if not step.preempted:
            self.admit(step)
        for request in running:
            if not request.is_decoding and request.status is Status.RUNNING:
                self._add_prefill(request, step)
        return step
