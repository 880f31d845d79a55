"""06.4: the end of a request, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator

from yaie.course.core.manifest import Exercise
from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06 import NOTEBOOK
from yaie.course.exercises.nb06.scene import (
    Changes,
    compare,
    end_all,
    leaving,
    names,
    running_scene,
    state,
)

EXERCISE = Exercise(
    id="06.4",
    notebook=NOTEBOOK,
    slug="finish",
    title="End a request, wherever it is",
    target="yaie.engine.scheduler:Scheduler.finish",
    task=(
        "A request has its last token, or its user went away. It may be running or still "
        "waiting. Give back what it holds, and record why it ended."
    ),
    difficulty=1,
    minutes=6,
    hints=(
        "A running request holds blocks, a lock and a place in the batch. A waiting one holds a "
        "place in the queue, and nothing else.",
        "After any workload, every block is free or in the cache without a lock. A request "
        "that ends without giving its blocks back breaks that for good, a few blocks each.",
        "If it is RUNNING, `self._leave(request)`; if it is WAITING, remove it from "
        "`self.waiting`. Then set `status` and `finish_reason`.",
    ),
    proves="Blocks and locks return, the cache keeps what was computed, and queues are clean.",
    part="scheduler",
)


def cases() -> Iterator[Case]:
    yield Case("a request runs", waits=False, reason="stop")
    yield Case("a request runs", waits=False, reason="length")
    yield Case("a request has not begun", waits=True, reason="abort")


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = running_scene(scheduler_class, 4)
    changes: Changes
    if case.waits:
        request = scene.add("waits", 6)
        left = names(r for r in scene.scheduler.waiting if r is not request)
        changes = {"the list of waiting requests": (left, "It must not be admitted later.")}
    else:
        changes = leaving(scene, request)
    changes["its status"] = "finished", "It has ended."
    changes["its finish_reason"] = case.reason, "The reason is recorded for its user."
    before, call = state(scene, request), f"finish({request.request_id}, {case.reason!r})"
    with see.call(call):
        scene.scheduler.finish(request, case.reason)
    compare(see, scene, request, call, before, changes)
    end_all(see, scene)
