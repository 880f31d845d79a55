"""The check of exercise 06.1: decode first, then prompts under way, then new requests."""

from __future__ import annotations

import random

from yaie.course.checks.nb06.scene import step_by_reference
from yaie.course.core.expect import equal, given, true
from yaie.course.lessons.simulate import Simulation, counts


def check_schedule(scheduler_class: type) -> None:
    check_decode_first(scheduler_class)
    check_chunks(scheduler_class)
    check_old_before_new(scheduler_class)
    check_room_for_every_token(scheduler_class)
    check_preemption(scheduler_class)
    check_random_work(scheduler_class)


def check_decode_first(scheduler_class: type) -> None:
    scene = Simulation(scheduler_class)
    scene.add("short", 3)
    step_by_reference(scene)
    scene.add("big", 40)
    what = "schedule() with a budget of 16, one request that decodes and a prompt of 40 waiting"
    with given(what):
        step = scene.scheduler.schedule()
    true(step is not None, f"{what} returned None: the step it put together is what it returns.")
    got = counts(step)
    equal(
        got,
        {"short": 1, "big": 15},
        f"{what}: tokens by request",
        because="The decoding request gets its one token first; the prompt takes what is left.",
        mistakes=[
            ({"big": 16}, "The prompt took the whole budget, and the request that decodes waits."),
            ({"short": 1}, "Waiting requests are admitted at the end of every step: see `admit`."),
            ({}, "Nothing was scheduled."),
        ],
    )
    equal(list(got), ["short", "big"], f"{what}: the order of the batch", because="Decode first.")


def check_chunks(scheduler_class: type) -> None:
    scene = Simulation(scheduler_class)
    scene.add("a", 40)
    sizes = []
    for _ in range(3):
        with given("schedule() with a budget of 16 and one prompt of 40"):
            step = scene.scheduler.schedule()
        sizes.append(counts(step).get("a", 0))
        scene.compute(step)
    equal(
        sizes,
        [16, 16, 8],
        "the chunks of a prompt of 40 with a budget of 16, in three steps",
        because="A prompt that runs already goes on with `_add_prefill` until it is computed.",
        mistakes=[([16, 0, 0], "The rest of a prompt under way was never scheduled.")],
    )


def check_old_before_new(scheduler_class: type) -> None:
    scene = Simulation(scheduler_class)
    scene.add("old", 24)
    step_by_reference(scene)
    scene.add("new", 12)
    what = "schedule() with 8 tokens of a prompt under way, 12 of a new one, and a budget of 16"
    with given(what):
        step = scene.scheduler.schedule()
    equal(
        counts(step),
        {"old": 8, "new": 8},
        f"{what}: tokens by request",
        because="A prompt under way holds blocks already, so it is finished before others begin.",
        mistakes=[({"new": 12, "old": 4}, "The new request was admitted before the old went on.")],
    )


def check_room_for_every_token(scheduler_class: type) -> None:
    scene = Simulation(scheduler_class)
    request = scene.add("a", 8)
    step_by_reference(scene)
    what = "schedule() with one request that has 8 tokens in two full blocks, and decodes"
    with given(what):
        scene.scheduler.schedule()
    equal(
        len(scene.kv.block_tables["a"]),
        3,
        f"{what}: blocks of the request",
        because="Its ninth token needs a slot before it is computed: call `grow`.",
    )
    equal(scene.kv.lengths["a"], len(request.token_ids), f"{what}: its tokens with a slot")


def check_preemption(scheduler_class: type) -> None:
    scene = Simulation(scheduler_class, num_blocks=5, enable_prefix_caching=False)
    for name, length in (("a", 8), ("b", 4), ("c", 8)):
        scene.add(name, length)
    step_by_reference(scene)  # c's last tokens wait for the budget
    what = "schedule() in a full pool, where `grow` preempts c to make room for a"
    admitted_to = []
    scene.scheduler.admit = admitted_to.append
    with given(what):
        step = scene.scheduler.schedule()
    names = [request.request_id for request in step.scheduled]
    true(
        "c" not in names,
        f"{what}: c is in the step, though it lost its blocks in the same step. Look at a "
        "request's `status` again before you add it: `grow` may have changed it.",
    )
    true(
        not admitted_to,
        f"{what}: `admit` was called in the step in which c was preempted. Somebody just lost its "
        "blocks because none were free: admit nobody then.",
    )
    equal(names, ["a", "b"], f"{what}: the requests of the step")

    scene = Simulation(scheduler_class, num_blocks=4, enable_prefix_caching=False)
    scene.add("a", 8)
    scene.add("b", 8)
    step_by_reference(scene)
    what = "schedule() in a full pool, where a takes b's blocks and b decodes too"
    with given(what):
        step = scene.scheduler.schedule()
    equal(
        counts(step),
        {"a": 1},
        f"{what}: tokens by request",
        because="b was preempted for a, so it has no place in this step.",
    )

    scene = Simulation(scheduler_class, num_blocks=4, enable_prefix_caching=False)
    for name in "ab":
        scene.add(name, 7)
    step_by_reference(scene)
    step_by_reference(scene)
    scene.scheduler.running.reverse()  # a was admitted last: in need of a block, it is the victim
    scene.scheduler.running[0].num_computed_tokens -= 1  # and b has a slot for its token
    scene.kv.lengths["b"] = 9
    what = "schedule() where `grow` finds no block, and preempts the very request it was called for"
    with given(what):
        step = scene.scheduler.schedule()
    true(
        "a" not in counts(step),
        f"{what}: it was scheduled nevertheless. `grow` returns whether the request still runs.",
    )


def check_random_work(scheduler_class: type) -> None:
    generator = random.Random(0)
    for trial in range(12):
        budget = generator.choice([8, 11, 32])
        scene = Simulation(scheduler_class, num_blocks=16, max_num_batched_tokens=budget)
        for i in range(10):
            scene.add(f"r{i}", generator.randrange(1, 30))
        what = f"random work {trial}, with a budget of {budget}"
        for _ in range(400):
            if not scene.scheduler.has_work:
                break
            decoding = {r.request_id for r in scene.scheduler.running if r.is_decoding}
            with given(f"schedule(), {what}"):
                step = scene.scheduler.schedule()
            got = counts(step)
            true(
                sum(got.values()) <= budget,
                f"{what}: a step computes {sum(got.values())} tokens.",
            )
            starved = decoding - set(got) - {r.request_id for r in step.preempted}
            true(not starved, f"{what}: {sorted(starved)} decode, but are not in the step.")
            scene.compute(step)
            for request in list(scene.scheduler.running):
                if request.num_output_tokens >= 6:
                    scene.scheduler.finish(request, "length")
        true(not scene.scheduler.has_work, f"{what}: requests are left after 400 steps.")
        true(scene.is_whole(), f"{what}: when all is done, blocks are missing from the pool.")
