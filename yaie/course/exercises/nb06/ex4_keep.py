"""06.4: what a running request puts into the cache, and the end of a request, wherever it is."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06.scene import (
    Changes,
    blocks_in,
    blocks_to,
    compare,
    end_all,
    leaving,
    names,
    running_scene,
    state,
)
from yaie.course.lessons.simulate import Simulation
from yaie.engine.scheduler import Scheduler

SIZE = 4  # tokens per block
TEN = list(range(10))
FULL = "Full blocks of computed tokens are kept, and no others."
SAME = "The cache has blocks for the same tokens, so the request goes on with those."
USERS = "Each table that names a block is one user of it, and the cache is another."


def cases() -> Iterator[Case]:
    yield keep("10 tokens are computed, and the cache is empty", 10)
    yield keep("8 tokens are computed, and the cache is empty", 8)
    yield keep("6 of 10 tokens are computed", 6)
    yield keep("3 tokens are computed, less than a block", 3)
    yield keep("10 tokens are computed", 10, until=7)
    yield keep("10 tokens are computed", 10, until=0)
    yield keep("10 tokens are computed, 8 of them in b's blocks in the cache", 10, b=8, why=SAME)
    yield keep("10 tokens are computed, 4 of them in b's block in the cache", 10, b=4, why=SAME)
    yield keep("4 tokens are kept, and 10 are computed now", 10, kept=4)
    yield keep("8 tokens are kept, and 9 are computed now", 9, kept=8)
    yield keep("4 tokens are kept, and b has kept 8 of the same tokens", 10, kept=4, b=8, why=SAME)
    yield keep("requests a and b have kept the same 4 tokens, and a has 10 now", 10, kept=4, b=4)
    yield keep("10 tokens are computed, 8 of them by b in another namespace", 10, b=8, space="lora")
    yield keep("10 tokens are computed, and enable_prefix_caching=False", 10, caching=False)
    yield keep("10 tokens are computed, and the request has an error", 10, error="NaN")
    yield Case("a request runs", call="finish", waits=False, reason="stop")
    yield Case("a request runs", call="finish", waits=False, reason="length")
    yield Case("a request has not begun", call="finish", waits=True, reason="abort")
    generator = random.Random(0)
    for _ in range(8):
        prompts = [(generator.choice([0, 4, 8, 12]), generator.randrange(1, 9)) for _ in range(8)]
        yield Case(in_words, call="work", trace=prompts, blocks=generator.choice([9, 12, 16]))


def keep(
    name: str,
    computed: int,
    until: int | None = None,
    kept: int = 0,
    b: int = 0,
    space: str = "",
    caching: bool = True,
    error: str | None = None,
    why: str = FULL,
) -> Case:
    """A request a of 10 tokens at most, which runs, and perhaps b with the same tokens.

    Args:
        computed: how many tokens of a have keys and values.
        until: the argument `num_tokens`.
        kept: how many a has kept before.
        b: how many b has kept, after a kept those.
        space: the namespace of a; b has none.
    """
    return Case(name, call="keep", computed=computed, until=until, kept=kept, b=b, space=space,
                caching=caching, error=error, why=why)  # fmt: skip


def in_words(case: Case) -> str:
    prompts = ", ".join(f"{shared}+{own}" for shared, own in case.trace)
    return f"prompts of {prompts} tokens, the first of them shared, and {case.blocks} blocks"


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    {"keep": observe_keep, "finish": observe_finish, "work": observe_work}[case.call](
        scheduler_class, case, see
    )


# ------------------------------------------------------------------------------------- keep


def observe_keep(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = two_that_run(case)
    tables = {name: list(table) for name, table in scene.kv.block_tables.items()}
    cached, locked = expected(case, tables)
    scene.scheduler.__class__ = scheduler_class  # the reference set the scene
    arguments = "a" if case.until is None else f"a, {case.until}"
    with see.call(f"keep({arguments})"):
        if case.until is None:
            scene.scheduler.keep(request)
        else:
            scene.scheduler.keep(request, case.until)
    after = f"after keep({arguments})"
    got = scene.cache.tree.match(request.token_ids, case.space).values
    mine = [cached[key] for key in keys_of(case.space, len(request.token_ids)) if key in cached]
    see.equal(f"the list of blocks that the cache has of a's tokens {after}", got, mine, case.why)
    see.equal(f"a's block table {after}", scene.kv.block_tables["a"], tables["a"], case.why)
    for name in tables.keys() - {"a"}:
        see.equal(f"{name}'s block table {after}", scene.kv.block_tables[name], tables[name])
    ends = request.node.path_values() if request.node else None
    because = "The request's node is where its kept tokens end."
    see.equal(f"the blocks up to request.node {after}", ends, locked["a"], because)
    see.equal(f"num_kept_tokens {after}", request.num_kept_tokens, SIZE * len(locked["a"]),
              "Whole blocks are kept.")  # fmt: skip
    number = len({block for blocks in locked.values() for block in blocks})
    because = "What a running request has kept is locked, once."
    see.equal(f"the number of locked blocks {after}", scene.num_locked(), number, because)
    see.equal(f"the number of users per block {after}",
              *users(scene, tables, set(cached.values())), USERS)  # fmt: skip
    see.equal(f"num_computed_tokens {after}", request.num_computed_tokens, case.computed)
    end_all(see, scene)


def two_that_run(case: Case) -> tuple[Simulation, Any]:
    """a and b run, set by the reference, with blocks of their own for the same tokens."""
    scene = Simulation(Scheduler, num_blocks=12)
    for name in "ab" if case.b else "a":
        request = scene.add(name, list(TEN))
        request.namespace = case.space if name == "a" else ""
        scene.scheduler.waiting.remove(request)
        Scheduler.start(scene.scheduler, request)
        request.num_computed_tokens = len(TEN)
    a = scene.requests["a"]
    if case.kept:
        Scheduler.keep(scene.scheduler, a, case.kept)
    if case.b:
        Scheduler.keep(scene.scheduler, scene.requests["b"], case.b)
    a.num_computed_tokens, a.error = case.computed, case.error
    scene.scheduler.enable_prefix_caching = case.caching
    return scene, a


def keys_of(space: str, num_tokens: int) -> list[tuple[str, int]]:
    """One key per full block: the namespace, and where the block ends."""
    return [(space, end) for end in range(SIZE, num_tokens + 1, SIZE)]


def expected(case: Case, tables: dict[str, list[int]]) -> tuple[dict, dict[str, list[int]]]:
    """Change a's table to what it is to be.

    Returns:
        The block that the cache is to have for each key, and what each request is to lock.
    """
    cached: dict[tuple[str, int], int] = {}

    def kept(name: str, space: str, num_tokens: int) -> list[int]:
        keys = keys_of(space, num_tokens)
        for place, key in enumerate(keys):
            tables[name][place] = cached.setdefault(key, tables[name][place])
        return tables[name][: len(keys)]

    locked = {"a": kept("a", case.space, case.kept)}
    if case.b:
        locked["b"] = kept("b", "", case.b)
    if case.caching and not case.error:
        until = case.computed if case.until is None else case.until
        locked["a"] = kept("a", case.space, until)
    return cached, locked


def users(scene: Simulation, tables: dict[str, list[int]], cached: set[int]) -> tuple[list, list]:
    """How many users each block has, and should have."""
    blocks = range(scene.kv.pool.num_blocks)
    named = [block for table in tables.values() for block in table]
    want = [named.count(block) + (block in cached) for block in blocks]
    return [scene.kv.pool.ref_count(block) for block in blocks], want


# ------------------------------------------------------------------------------------- finish


def observe_finish(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = running_scene(Scheduler, 3)  # its third block is full
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
    scene.scheduler.__class__ = scheduler_class
    with see.call(call):
        scene.scheduler.finish(request, case.reason)
    compare(see, scene, request, call, before, changes)
    end_all(see, scene)


# ------------------------------------------------------------------------------------- both


def observe_work(scheduler_class: type, case: Case, see: Observer) -> None:
    scene = Simulation(scheduler_class, num_blocks=case.blocks)
    scheduler = scene.scheduler
    for number, (shared, own) in enumerate(case.trace):
        tokens: Sequence[int] = [*range(shared), *(scene.new_token() for _ in range(own))]
        scene.add(f"r{number}", list(tokens))
    for _ in range(300):
        if not scheduler.has_work:
            break
        with see.call("schedule()"):
            step = scheduler.schedule()
        with see.call("advance(step), which calls keep"):
            scene.compute(step)
        got, want = users(scene, scene.kv.block_tables, blocks_in(scene.cache))
        see.equal("the number of users per block", got, want, USERS)
        twice = [r.request_id for r in scheduler.running
                 if blocks_to(r.node) != set(blocks_of(scene, r))]  # fmt: skip
        see.equal("the list of requests with other blocks than those they lock", twice, [], SAME)
        see.stop_if_wrong()
        for request in list(scheduler.running):
            if request.num_output_tokens >= 6:
                with see.call(f"finish({request.request_id}, 'length')"):
                    scheduler.finish(request, "length")
    left = names([*scheduler.running, *scheduler.waiting])
    see.equal("the list of requests left after 300 steps", left, [], "All of them fit, in turn.")
    end_all(see, scene)


def blocks_of(scene: Simulation, request: Any) -> list[int]:
    """The first blocks of a request's table, as many as it locks."""
    table = scene.kv.block_tables[request.request_id]
    return table[: len(blocks_to(request.node))]
