"""The checks of exercises 06.3 and 06.4: how a request loses its place."""

from __future__ import annotations

from yaie.course.checks.nb06.scene import step_by_reference
from yaie.course.core.expect import equal, given, true
from yaie.course.lessons.simulate import Simulation


def running_request(scheduler_class: type, num_outputs: int) -> tuple[Simulation, object]:
    """A request with 10 tokens of prompt that has generated some more, and one behind it."""
    scene = Simulation(scheduler_class, num_blocks=12)
    request = scene.add("a", 10)
    scene.add("b", 5)
    for _ in range(num_outputs):
        step_by_reference(scene)
    return scene, request


def check_preempt(scheduler_class: type) -> None:
    from yaie.engine.request import Status

    scene, request = running_request(scheduler_class, num_outputs=2)
    waiting = scene.add("late", 6)
    tokens = list(request.token_ids)
    what = "preempt(a), which has a prompt of 10 tokens and 2 generated ones"
    with given(what):
        scene.scheduler.preempt(request)
    equal(
        request.token_ids,
        tokens,
        f"{what}: token_ids",
        because="Its tokens are all that remains of it.",
        mistakes=[
            (tokens[:10], "The generated tokens are lost, and the user has seen them already.")
        ],
    )
    equal(
        request.num_computed_tokens,
        0,
        f"{what}: num_computed_tokens",
        because="Its keys and values are gone with its blocks, so all has to be computed again.",
    )
    true("a" not in scene.kv.block_tables, f"{what}: it still has its blocks. See `_leave`.")
    true(request not in scene.scheduler.running, f"{what}: it is still among `running`.")
    true(request.node is None, f"{what}: it still holds a node of the cache. See `_leave`.")
    equal(request.status, Status.WAITING, f"{what}: its status")
    equal(
        list(scene.scheduler.waiting).count(request),
        1,
        f"{what}: its places in `waiting`",
        because="It waits to be admitted again.",
    )
    equal(
        scene.scheduler.waiting[0].request_id,
        "a",
        f"{what}: the head of `waiting`",
        because="It was admitted before all who wait, so it goes to the front.",
        mistakes=[("late", "At the back, it would be overtaken by requests that came after it.")],
    )
    equal(request.metrics.num_preemptions, 1, f"{what}: metrics.num_preemptions")

    for _ in range(30):
        step = step_by_reference(scene)
        if request in step.scheduled and request.num_computed_tokens >= len(tokens):
            break
    equal(
        request.token_ids[: len(tokens)],
        tokens,
        "the tokens of a after it was computed again",
        because="It goes on where it was.",
    )
    finish_all(scene)
    true(scene.is_whole(), f"{what}: when all is done, blocks are missing from the pool.")
    true(waiting.num_output_tokens > 0, f"{what}: the request behind it never ran.")


def finish_all(scene: Simulation) -> None:
    from yaie.engine.scheduler import Scheduler

    for request in [*scene.scheduler.running, *scene.scheduler.waiting]:
        Scheduler.finish(scene.scheduler, request, "stop")


def check_finish(scheduler_class: type) -> None:
    from yaie.engine.request import Status

    scene, request = running_request(scheduler_class, num_outputs=4)
    other = scene.scheduler.running[1]
    computed = request.num_computed_tokens
    what = 'finish(a, "stop"), which runs'
    with given(what):
        scene.scheduler.finish(request, "stop")
    equal(request.status, Status.FINISHED, f"{what}: its status")
    equal(request.finish_reason, "stop", f"{what}: its finish_reason")
    true(request not in scene.scheduler.running, f"{what}: it is still among `running`.")
    true(
        "a" not in scene.kv.block_tables,
        f"{what}: its blocks were not returned. They are lost for ever, a few with each request.",
    )
    true(
        request.node is None,
        f"{what}: its prefix stays locked in the cache, and can never be evicted. See `_leave`.",
    )
    equal(
        scene.cache.match(request.token_ids).length,
        computed // 4 * 4,
        f"{what}: its tokens that the cache keeps for others",
        because="`_leave` hands full blocks to the cache before it frees them.",
        mistakes=[(8, "What it generated is not kept: only its prompt is.")],
    )
    true(other in scene.scheduler.running, f"{what}: the other request stopped running.")

    waiting = scene.add("waits", 6)
    what = 'finish(waits, "abort"), which has not begun'
    with given(what, errors={KeyError: "It has no blocks yet, so there is nothing to give up."}):
        scene.scheduler.finish(waiting, "abort")
    true(
        waiting not in scene.scheduler.waiting,
        f"{what}: it is still in `waiting`, and would be admitted later.",
    )
    equal(waiting.status, Status.FINISHED, f"{what}: its status")
    finish_all(scene)
    true(scene.is_whole(), "When all is done, blocks are missing from the pool.")
