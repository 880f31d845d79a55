"""What the exercises of notebook 06 share: scenes set by the reference, and what a call changes.

The state of a scene is a dict of everything that a method may touch. An oracle says which entries
a call has to change, and to what; all others must stay.
"""

from collections.abc import Callable, Sequence
from typing import Any

from yaie.course.core.observe import Observer
from yaie.course.lessons.simulate import Simulation
from yaie.engine.scheduler import Scheduler, Step

Changes = dict[str, tuple[Any, str]]  # what changes → (the value after the call, why)


def step_by_reference(scene: Simulation) -> Any:
    """Schedule and compute one step, by the reference's rules."""
    step = Scheduler.schedule(scene.scheduler)
    scene.compute(step)
    return step


def names(requests: Any) -> list[str]:
    return [getattr(request, "request_id", repr(request)) for request in requests]


def state(scene: Simulation, request: Any) -> dict[str, Any]:
    """Everything that a method of the scheduler may change."""
    name, metrics = request.request_id, request.metrics
    table = scene.kv.block_tables.get(name)
    return {
        "the value of token_ids": list(request.token_ids),
        "num_computed_tokens": request.num_computed_tokens,
        "num_kept_tokens": request.num_kept_tokens,
        "the list of running requests": names(scene.scheduler.running),
        "the list of waiting requests": names(scene.scheduler.waiting),
        "the type of waiting": type(scene.scheduler.waiting).__name__,
        "the number of blocks in its table": table if table is None else len(table),
        "kv.lengths of the request": scene.kv.lengths.get(name),
        "whether request.node is a node": request.node is not None,
        "the number of locked blocks": scene.num_locked(),
        "the number of cached blocks": scene.cache.num_cached,
        "the number of free blocks": scene.kv.pool.num_free,
        "its status": getattr(request.status, "value", repr(request.status)),
        "its finish_reason": request.finish_reason,
        "metrics.num_cached_tokens": metrics.num_cached_tokens,
        "metrics.num_preemptions": metrics.num_preemptions,
    }


def compare(
    see: Observer, scene: Simulation, request: Any, call: str, before: dict, changes: Changes
) -> None:
    """Note the state after a call, where nothing but `changes` should differ from `before`."""
    for what, got in state(scene, request).items():
        want, because = changes.get(what, (before[what], "The call does not change it."))
        see.equal(f"{what} after {call}", got, want, because)


def leaving(scene: Simulation, request: Any) -> Changes:
    """What changes when a running request gives up everything that it holds."""
    kv, cache, scheduler = scene.kv, scene.cache, scene.scheduler
    others = {b for n, t in kv.block_tables.items() if n != request.request_id for b in t}
    table, kept = kv.block_tables[request.request_id], set()
    if scheduler.enable_prefix_caching:
        computed = request.token_ids[: request.num_computed_tokens]
        kept = set(table[: len(computed) // kv.block_size]) | blocks_in(cache)
    locked = {b for r in scheduler.running if r is not request for b in blocks_to(r.node)}
    running = [r for r in scheduler.running if r is not request]
    gives = "Its blocks go to the cache if they are full and computed, else back to the pool."
    return {
        "the number of blocks in its table": (None, "It holds no blocks."),
        "kv.lengths of the request": (None, "It holds no blocks."),
        "the list of running requests": (names(running), "It does not run."),
        "num_kept_tokens": (0, "It holds no part of the cache."),
        "whether request.node is a node": (False, "It holds no lock."),
        "the number of locked blocks": (len(locked), "What it held in the cache is unlocked."),
        "the number of cached blocks": (len(kept), gives),
        "the number of free blocks": (kv.pool.num_blocks - len(kept | others), gives),
    }


def blocks_in(cache: Any) -> set[int]:
    """The blocks that a cache's tree names."""
    blocks, stack = set(), list(cache.tree.roots.values())
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        blocks.update(node.values)
    return blocks


def blocks_to(node: Any) -> set[int]:
    """The blocks from the root down to a node."""
    blocks = set()
    while node is not None:
        blocks.update(node.values)
        node = node.parent
    return blocks


def end_all(see: Observer, scene: Simulation, besides: Sequence[Any] = ()) -> None:
    """End every request by the reference's rules, and note whether all blocks came back.

    Args:
        besides: requests that have left and are not queued.
    """
    for request in [*scene.scheduler.running, *scene.scheduler.waiting]:
        if request in besides:
            continue
        Scheduler.finish(scene.scheduler, request, "stop")
    locked, back = scene.num_locked(), scene.kv.pool.num_free + scene.cache.num_cached
    gone = "A request that ends gives its locks back."
    see.equal("the number of locked blocks in the end", locked, 0, gone)
    all_of_them, whole = scene.kv.pool.num_blocks, "Every block is free or in the cache."
    see.equal("the number of free and cached blocks in the end", back, all_of_them, whole)


def observe_trace(
    see: Observer, scene: Simulation, lengths: Sequence[int], schedule: Callable[[], Step]
) -> None:
    """Give 6 tokens to each of some prompts of these lengths, in steps that `schedule` notes."""
    for number, length in enumerate(lengths):
        scene.add(f"r{number}", length)
    scheduler = scene.scheduler
    for _ in range(400):
        if not scheduler.has_work:
            break
        step = schedule()
        see.stop_if_wrong()
        scene.compute(step)
        for request in list(scheduler.running):
            if request.num_output_tokens >= 6:
                scheduler.finish(request, "length")
    left = names([*scheduler.running, *scheduler.waiting])
    see.equal("the list of requests left after 400 steps", left, [], "All of them fit, in turn.")
    end_all(see, scene)


def running_scene(scheduler_class: type, num_steps: int, **options: Any) -> tuple[Simulation, Any]:
    """A request "a" with a prompt of 10 tokens after some steps, and "b" after it."""
    scene = Simulation(scheduler_class, num_blocks=12, **options)
    request = scene.add("a", 10)
    scene.add("b", 5)
    for _ in range(num_steps):
        step_by_reference(scene)
    return scene, request
