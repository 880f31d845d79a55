"""06.4: the end of a request, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06.scene import (
    Changes,
    compare,
    end_all,
    leaving,
    names,
    running_scene,
    state,
)


def cases() -> Iterator[Case]:
    yield Case("a request runs", waits=False, reason="stop")
    yield Case("a request runs", waits=False, reason="length")
    yield Case("a request has not begun", waits=True, reason="abort")


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = running_scene(scheduler_class, 3)  # its third block is full
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
