"""The check of exercise 06.2: admission by the blocks that there are."""

from __future__ import annotations

from yaie.course.core.expect import equal, given, true
from yaie.course.lessons.simulate import Simulation

TOO_MANY = (
    "More blocks were promised than could be had. Only `make_room` knows: cached blocks under a "
    "lock cannot be evicted, and neither can the prefix that this request is about to share."
)


def check_start(scheduler_class: type) -> None:
    check_without_prefix(scheduler_class)
    check_prefix(scheduler_class)
    check_own_prefix_counted(scheduler_class)
    check_locked_blocks_counted(scheduler_class)
    check_refusal(scheduler_class)
    check_caching_off(scheduler_class)


def check_without_prefix(scheduler_class: type) -> None:
    from yaie.engine.kv_cache import OutOfBlocks
    from yaie.engine.request import Status

    scene = Simulation(scheduler_class, num_blocks=4)
    request = scene.add("a", 10)
    what = "start() of a request with 10 tokens, 4 free blocks of 4"
    with given(what, errors={OutOfBlocks: TOO_MANY}):
        got = scene.scheduler.start(request)
    equal(got, True, what, because="Its 10 tokens need 3 blocks.")
    table = scene.kv.block_tables.get("a")
    true(table is not None, f"{what}: it has no block table. `kv.allocate_blocks` makes one.")
    equal(len(table), 3, f"{what}: its blocks")
    equal(request.status, Status.RUNNING, f"{what}: its status")
    true(request in scene.scheduler.running, f"{what}: it is not among `running`.")


def cache_a_prompt(scene: Simulation, tokens: list[int]) -> None:
    """Let a request compute `tokens` and finish, so that the cache keeps them."""
    from yaie.engine.scheduler import Scheduler

    request = scene.add("before", tokens)
    scene.scheduler.waiting.remove(request)
    Scheduler.start(scene.scheduler, request)
    request.num_computed_tokens = len(tokens)
    scene.scheduler.finish(request, "stop")


def check_prefix(scheduler_class: type) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    scene = Simulation(scheduler_class, num_blocks=6)
    cache_a_prompt(scene, list(range(8)))
    request = scene.add("a", [*range(8), 90, 91])
    what = "start() of a request with 10 tokens, of which 8 are cached"
    with given(what, errors={OutOfBlocks: TOO_MANY}):
        scene.scheduler.start(request)
    equal(
        request.num_computed_tokens,
        8,
        f"{what}: num_computed_tokens",
        because="What the cache holds is computed.",
        mistakes=[(0, "The cached tokens would be computed once more.")],
    )
    equal(request.metrics.num_cached_tokens, 8, f"{what}: metrics.num_cached_tokens")
    equal(
        scene.kv.pool.num_free,
        6 - 3,
        f"{what}: free blocks of 6",
        because="Two blocks are shared, and one is new.",
        mistakes=[(6 - 5, "It got new blocks for its cached tokens as well: pass the prefix on.")],
    )
    true(
        request.node is not None and request.node.lock_count == 1,
        f"{what}: `request.node`, where its prefix ends in the cache, must be locked once. "
        "Otherwise the prefix can be evicted while the request runs.",
    )


def check_own_prefix_counted(scheduler_class: type) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    scene = Simulation(scheduler_class, num_blocks=4)
    cache_a_prompt(scene, list(range(12)))
    request = scene.add("a", [*range(12), *range(50, 58)])
    what = (
        "start() of a request that needs 2 new blocks, with 1 free and 3 cached: exactly the "
        "prefix that it shares"
    )
    with given(what, errors={OutOfBlocks: TOO_MANY, ValueError: TOO_MANY}):
        got = scene.scheduler.start(request)
    equal(
        got,
        False,
        what,
        because="The three cached blocks look evictable until they are locked for this request. "
        "Lock the match first, then ask for room.",
    )
    equal(scene.cache.num_cached, 3, f"{what}: blocks in the cache", because="None may be evicted.")


def check_locked_blocks_counted(scheduler_class: type) -> None:
    from yaie.engine.kv_cache import OutOfBlocks
    from yaie.engine.scheduler import Scheduler

    scene = Simulation(scheduler_class, num_blocks=4)
    cache_a_prompt(scene, list(range(8)))
    other = scene.add("other", [*range(8), 70])
    Scheduler.start(scene.scheduler, other)
    request = scene.add("a", 8)
    what = "start() of a request that needs 2 blocks, with 1 free and 2 cached under a lock"
    with given(what, errors={OutOfBlocks: TOO_MANY}):
        got = scene.scheduler.start(request)
    equal(
        got,
        False,
        what,
        because="Blocks that a running request has locked cannot be evicted for a new one.",
    )


def check_refusal(scheduler_class: type) -> None:
    from yaie.engine.kv_cache import OutOfBlocks
    from yaie.engine.request import Status

    scene = Simulation(scheduler_class, num_blocks=4)
    cache_a_prompt(scene, list(range(4)))
    request = scene.add("a", [*range(4), *range(30, 50)])
    what = "start() of a request with 24 tokens, of which 4 are cached, in a pool of 4 blocks"
    with given(what, errors={OutOfBlocks: TOO_MANY}):
        got = scene.scheduler.start(request)
    equal(got, False, what, because="It needs 6 blocks.")
    true(
        scene.num_locked() == 0,
        f"{what}: it was refused, but its prefix stays locked. Unlock what you locked.",
    )
    equal(request.status, Status.WAITING, f"{what}: its status")
    true(request not in scene.scheduler.running, f"{what}: it is among `running`.")
    true("a" not in scene.kv.block_tables, f"{what}: it has a block table.")


def check_caching_off(scheduler_class: type) -> None:
    from yaie.engine.kv_cache import OutOfBlocks

    scene = Simulation(scheduler_class, num_blocks=6)
    cache_a_prompt(scene, list(range(8)))
    scene.scheduler.enable_prefix_caching = False
    request = scene.add("a", [*range(8), 90])
    what = "start() with enable_prefix_caching=False"
    with given(what, errors={OutOfBlocks: TOO_MANY}):
        scene.scheduler.start(request)
    equal(
        request.num_computed_tokens,
        0,
        f"{what}: num_computed_tokens",
        because="Match no tokens then.",
    )
