"""Never goes on with a prompt that did not fit into one step."""

from yaie.engine import scheduler as reference
from yaie.engine.request import Status
from yaie.engine.scheduler import Step

EXPECT = "The rest of a prompt under way was never scheduled"


class Scheduler(reference.Scheduler):
    def schedule(self):
        step = Step()
        for request in [request for request in self.running if request.is_decoding]:
            if request.status is Status.RUNNING and self.grow(request, step):
                step.add(request, 1)
        if not step.preempted:
            self.admit(step)
        return step
