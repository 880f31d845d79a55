"""06.3: a slot for a token, whom it costs the blocks, and a request that loses them."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06 import pictures
from yaie.course.exercises.nb06.scene import (
    blocks_in,
    blocks_to,
    compare,
    end_all,
    leaving,
    names,
    observe_trace,
    running_scene,
    state,
    step_by_reference,
)
from yaie.course.lessons.simulate import Simulation
from yaie.engine.kv_cache import blocks_needed
from yaie.engine.scheduler import Scheduler, Step

LAST = "c was admitted last."
SHARED = list(range(8))  # the tokens of two blocks
OFF = {"enable_prefix_caching": False}


def cases() -> Iterator[Case]:
    ten = "10 tokens of prompt and 2 generated ones"
    yield Case(f"a running request with {ten}", call="leave", steps=2, options={}, error=None)
    yield Case(f"a running request with {ten}, whose keys and values are wrong",
               call="leave", steps=2, options={}, error="NaN")  # fmt: skip
    yield Case(f"a running request with {ten}", call="preempt", steps=2, options={}, before=0)
    yield Case("a running request with 10 tokens of prompt and 3 generated ones",
               call="preempt", steps=3, options={}, before=1)  # fmt: skip
    yield Case(f"a running request with {ten}, no prefix caching",
               call="preempt", steps=2, options=OFF, before=0)  # fmt: skip
    yield slot("7 tokens have slots in two blocks, and a free block is left",
               {"a": 7}, 3, "a")  # fmt: skip
    yield slot("8 tokens have slots, which are all there are",
               {"a": 7}, 2, "a", has=8)  # fmt: skip
    yield slot("8 tokens fill two blocks, and a free block is left",
               {"a": 8}, 3, "a")  # fmt: skip
    yield slot("7 tokens have slots in two blocks, and no block is free",
               {"a": 7, "b": 4}, 3, "a")  # fmt: skip
    yield slot("8 tokens fill two blocks, and the other two are unused in the cache",
               {"a": 8}, 4, "a", cached=1, old=8)  # fmt: skip
    full = {"a": 8, "b": 4, "c": 4}
    yield slot("requests a, b and c fill the pool, and a needs a block",
               full, 4, "a", lost=["c"], why=LAST)  # fmt: skip
    yield slot("requests a, b and c fill the pool, and b needs a block",
               full, 4, "b", lost=["c"], why=LAST)  # fmt: skip
    yield slot("requests a, b and c fill the pool, and c needs a block",
               full, 4, "c", lost=["c"], why=LAST)  # fmt: skip
    yield slot("request a alone fills the pool and needs a block",
               {"a": 8}, 2, "a", lost=["a"], why="There is nothing else to preempt.")  # fmt: skip
    yield slot("request c has only blocks that a and b use too, and a needs a block",
               {"a": 8, "b": 4}, 3, "a", lost=["c", "b"], fork=True,
               why="c's blocks are a's as well, so losing them frees none.")  # fmt: skip
    yield slot("requests a, b and c fill the pool with blocks of the cache, and a needs a block",
               {"a": 8, "b": 8, "c": 4}, 5, "a", lost=["c"], caching=True, cached=4,
               why=LAST)  # fmt: skip
    generator = random.Random(0)
    for _ in range(8):
        lengths = [generator.randrange(1, 12) for _ in range(8)]
        caching, blocks = generator.random() < 0.5, generator.choice([6, 8])
        yield Case(in_words, call="work", trace=lengths, blocks=blocks, caching=caching)


def slot(
    name: str,
    lengths: dict[str, int],
    num_blocks: int,
    grows: str,
    has: int | None = None,
    cached: int = 0,
    old: int = 0,
    lost: tuple[str, ...] | list[str] = (),
    fork: bool = False,
    caching: bool = False,
    why: str = "No block is needed, or one is free.",
) -> Case:
    """Requests that decode, after prompts of these lengths, and one that needs a slot.

    Args:
        grows: the request that needs it.
        has: slots that it has before, if not one for each token of its prompt.
        cached: blocks in the cache afterwards.
        old: tokens in the cache that no request uses.
        lost: the requests that are preempted, in order.
        fork: a third request, c, has the blocks of a.
    """
    return Case(name, call="grow", lengths=lengths, num_blocks=num_blocks, grows=grows, has=has,
                cached=cached, old=old, lost=list(lost), fork=fork, caching=caching,
                why=why)  # fmt: skip


def in_words(case: Case) -> str:
    cache = "with" if case.caching else "without"
    return (
        f"prompts of {case.trace} tokens, 6 to generate each, {case.blocks} blocks, {cache} a cache"
    )


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    if case.call == "work":
        observe_work(scheduler_class, case, see)
    elif case.call == "grow":
        observe_grow(scheduler_class, case, see)
    elif case.call == "leave":
        observe_leave(scheduler_class, case, see)
    else:
        observe_preempt(scheduler_class, case, see)


# ------------------------------------------------------------------------------------- leave


def observe_leave(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = running_scene(scheduler_class, case.steps, **case.options)
    request.error = case.error
    before, changes = state(scene, request), leaving(scene, request)
    if case.error:
        stay = blocks_in(scene.cache) - blocks_to(request.node)
        used = {b for n, t in scene.kv.block_tables.items() if n != "a" for b in t}
        because = "Wrong keys and values must not be found again."
        changes["the number of cached blocks"] = len(stay), because
        changes["the number of free blocks"] = 12 - len(stay | used), because
    with see.call("leave(a)"):
        scene.scheduler.leave(request)
    if request.num_computed_tokens == 0:  # `leave` may reset it as well as `preempt`
        before["num_computed_tokens"] = 0
    compare(see, scene, request, "leave(a)", before, changes)
    end_all(see, scene, besides=[request])


# ------------------------------------------------------------------------------------- preempt


def observe_preempt(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = running_scene(scheduler_class, case.steps, **case.options)
    request.metrics.num_preemptions = case.before
    late = scene.add("late", 6)
    tokens, arrival = list(request.token_ids), request.metrics.arrival_time
    before, changes = state(scene, request), leaving(scene, request)
    waits = ["a", *names(scene.scheduler.waiting)]
    changes |= {
        "num_computed_tokens": (0, "Its keys and values are gone with its blocks."),
        "the list of waiting requests": (waits, "It was admitted before all others that wait."),
        "its status": ("waiting", "It waits to be admitted again."),
        "metrics.num_preemptions": (case.before + 1, "It was preempted once more."),
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


# ------------------------------------------------------------------------------------- grow


def observe_grow(scheduler_class: type, case: Case, see: Observer) -> None:
    scene = full_scene(scheduler_class, case)
    scheduler, kv, step = scene.scheduler, scene.kv, Step()
    request, running = scene.requests[case.grows], names(scheduler.running)
    tokens = {name: list(r.token_ids) for name, r in scene.requests.items()}
    call = f"grow({case.grows}, step)"
    with see.call(call):
        got = scheduler.grow(request, step)
    see.equal("the list of preempted requests", names(step.preempted), case.lost, case.why)
    runs = case.grows not in case.lost
    see.equal(f"the return value of {call}", got, runs, "It says whether the request still runs.")
    left = [name for name in running if name not in case.lost]
    see.equal(f"the list of running requests after {call}", names(scheduler.running), left)
    waits = case.lost[::-1]
    because = "Those that lost their blocks wait, the one admitted first in front."
    see.equal(
        f"the list of waiting requests after {call}", names(scheduler.waiting), waits, because
    )
    newest = len(request.token_ids)
    has_slot, because = kv.lengths.get(case.grows, 0) >= newest, "It is computed in this step."
    see.equal(f"whether the newest token of {case.grows} has a slot", has_slot, runs, because)
    blocks, because = len(kv.block_tables.get(case.grows, ())), "No token needs more of them yet."
    wanted = blocks_needed(newest, kv.block_size) if runs else 0
    see.equal(f"the number of blocks in the table of {case.grows}", blocks, wanted, because)
    because = "Only as much is evicted as the block takes."
    see.equal(f"the number of cached blocks after {call}", scene.cache.num_cached, case.cached,
              because)  # fmt: skip
    now = {name: list(r.token_ids) for name, r in scene.requests.items()}
    see.equal(f"the tokens of the requests after {call}", now, tokens, "The user has seen them.")
    end_all(see, scene)


def full_scene(scheduler_class: type, case: Case) -> Simulation:
    """Requests that decode: all tokens but the newest have slots, set by the reference."""
    scene = Simulation(scheduler_class, num_blocks=case.num_blocks)
    scheduler, kv = scene.scheduler, scene.kv

    def start(name: str, prompt: int | list[int]) -> Any:
        request = scene.add(name, prompt)
        scheduler.waiting.remove(request)
        Scheduler.start(scheduler, request)
        request.num_computed_tokens = len(request.token_ids)
        return request

    if case.old:
        Scheduler.finish(scheduler, start("old", case.old), "stop")
        del scene.requests["old"]
    scheduler.enable_prefix_caching = case.caching
    for name, length in case.lengths.items():
        request = start(name, length)
        if case.caching:
            Scheduler.keep(scheduler, request)
    if case.fork:
        request = scene.add("c", 8)
        scheduler.waiting.remove(request)
        kv.fork("a", "c")
        request.node, request.status = scene.cache.match("").node, type(request.status).RUNNING
        scene.cache.lock(request.node)
        request.num_computed_tokens = 8
        scheduler.running.append(request)
    for request in scheduler.running:
        request.token_ids.append(scene.new_token())
    if case.has:
        kv.append_tokens(case.grows, case.has - kv.lengths[case.grows])
    return scene


def observe_work(scheduler_class: type, case: Case, see: Observer) -> None:
    options = {"max_num_batched_tokens": 32, "enable_prefix_caching": case.caching}
    scene = Simulation(scheduler_class, num_blocks=case.blocks, **options)
    scheduler = scene.scheduler

    def schedule() -> Step:
        running = names(scheduler.running)
        with see.call("schedule(), which calls grow and preempt"):
            step = Scheduler.schedule(scheduler)
        lost = names(step.preempted)
        last, because = running[::-1][: len(lost)], "Those admitted last lose their blocks."
        see.equal("the list of preempted requests", lost, last, because)
        waits = names(scheduler.waiting)[: len(lost)]
        see.equal("the list of those who wait in front", waits, lost[::-1], "They are the oldest.")
        return step

    observe_trace(see, scene, case.trace, schedule)


draw = pictures.draw_preemption
