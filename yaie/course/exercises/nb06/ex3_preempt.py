"""06.3: a running request that loses its blocks, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06 import pictures
from yaie.course.exercises.nb06.scene import (
    compare,
    end_all,
    leaving,
    names,
    running_scene,
    state,
    step_by_reference,
)


def cases() -> Iterator[Case]:
    yield Case("10 tokens of prompt and 2 generated ones", steps=2, options={}, preemptions=0)
    yield Case("10 tokens of prompt and 3 generated ones", steps=3, options={}, preemptions=1)
    yield Case("10 tokens of prompt and 2 generated ones, no prefix caching", steps=2,
               options={"enable_prefix_caching": False}, preemptions=0)  # fmt: skip


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = running_scene(scheduler_class, case.steps, **case.options)
    request.metrics.num_preemptions = case.preemptions
    late = scene.add("late", 6)
    tokens, arrival = list(request.token_ids), request.metrics.arrival_time
    before, changes = state(scene, request), leaving(scene, request)
    waits = ["a", *names(scene.scheduler.waiting)]
    changes |= {
        "num_computed_tokens": (0, "Its keys and values are gone with its blocks."),
        "the list of waiting requests": (waits, "It was admitted before all others that wait."),
        "its status": ("waiting", "It waits to be admitted again."),
        "metrics.num_preemptions": (case.preemptions + 1, "It was preempted once more."),
    }
    with see.call("preempt(a)"):
        scene.scheduler.preempt(request)
    compare(see, scene, request, "preempt(a)", before, changes)
    kept, because = request.metrics.arrival_time == arrival, "It arrived once."
    see.true("metrics.arrival_time after preempt(a)", kept, "is not what it was", because)
    see.stop_if_wrong()
    for _ in range(30):
        step = step_by_reference(scene)
        is_back = request in step.scheduled and request.num_computed_tokens >= len(tokens)
        if is_back and late.num_output_tokens:
            break
    again = request.token_ids[: len(tokens)]
    see.equal("its first tokens, computed again,", again, tokens, "It goes on where it was.")
    ran = late.num_output_tokens > 0
    see.true("the request after it", ran, "never ran", "It has its turn after a.")
    end_all(see, scene)


draw = pictures.draw_preemption
