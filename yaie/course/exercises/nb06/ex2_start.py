"""06.2: a waiting request that gets blocks, or has to wait on as if nothing had been tried."""

from collections.abc import Iterator, Sequence
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06 import pictures
from yaie.course.exercises.nb06.scene import Changes, compare, end_all, names, state
from yaie.course.exercises.oracles import PrefixOracle
from yaie.course.lessons.simulate import Simulation
from yaie.engine.scheduler import Scheduler

SIZE = 4  # tokens per block


def cases() -> Iterator[Case]:
    yield case("10 tokens, 4 free blocks", 4, range(50, 60))
    yield case("8 tokens, 2 free blocks", 2, range(50, 58))
    eight = ((range(8), ""),)
    longer = [*range(8), 90, 91]
    yield case("10 tokens, 8 of them cached", 6, longer, eight)
    yield case("10 tokens, 8 of them cached, 1 free block", 3, longer, eight)
    yield case("20 tokens, 12 of them in the only blocks that could be evicted, 1 free block",
               4, [*range(12), *range(50, 58)], ((range(12), ""),))  # fmt: skip
    yield case("8 tokens, 1 free block, and 2 cached ones that another request has locked",
               4, range(50, 58), eight, [*range(8), 70])  # fmt: skip
    yield case("10 tokens, 8 of them cached, which a request that runs has locked",
               8, longer, eight, [*range(8), 70])  # fmt: skip
    yield case("24 tokens, 4 of them cached, in a pool of 4 blocks",
               4, [*range(4), *range(30, 50)], ((range(4), ""),))  # fmt: skip
    yield case("10 tokens, 1 free block, and 4 cached ones of other prompts",
               5, range(50, 60), (*eight, (range(20, 28), "")))  # fmt: skip
    yield case("9 tokens, 8 of them cached, and enable_prefix_caching=False",
               6, [*range(8), 90], eight, caching=False)  # fmt: skip
    adapted = ((range(8), "adapter"),)
    yield case("10 tokens, 8 of them cached in another namespace", 6, longer, adapted)
    yield case("10 tokens, 8 of them cached in its namespace 'adapter'",
               6, longer, adapted, namespace="adapter")  # fmt: skip
    yield case("a prompt of 4 tokens and 5 generated ones, 2 free blocks",
               2, range(9), generated=5)  # fmt: skip
    yield case("a prompt of 4 tokens and 5 generated ones, 4 free blocks",
               4, range(9), generated=5)  # fmt: skip
    yield case("a prompt of 8 tokens and 2 generated ones, preempted before; 8 tokens are cached",
               6, longer, eight, generated=2)  # fmt: skip


def case(
    name: str,
    num_blocks: int,
    tokens: Sequence[int],
    cached: Sequence[tuple[Sequence[int], str]] = (),
    other: Sequence[int] = (),
    generated: int = 0,
    namespace: str = "",
    caching: bool = True,
) -> Case:
    """What there is when the request is started.

    Args:
        num_blocks: of the pool.
        tokens: those of the request; the last `generated` of them are its output so far, and
            then it was preempted once.
        cached: token ids that earlier requests computed, and their namespace.
        other: the tokens of another request, which runs.
    """
    return Case(name, num_blocks=num_blocks, tokens=list(tokens), cached=cached, other=other,
                generated=generated, namespace=namespace, caching=caching)  # fmt: skip


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = set_up(scheduler_class, case)
    changes = expected(case, scene, request)
    before = state(scene, request)
    with see.call("start(a)"):
        got = scene.scheduler.start(request)
    fits = bool(changes)
    needed = f"{len(request.token_ids)} tokens need {blocks(request.token_ids)} blocks."
    see.equal("the return value of start(a)", got, fits, needed)
    compare(see, scene, request, "start(a)", before, changes)
    end_all(see, scene)


def set_up(scheduler_class: type, case: Case) -> tuple[Simulation, Any]:
    """The scene, by the reference's rules, and the request that waits."""
    scene = Simulation(scheduler_class, num_blocks=case.num_blocks)
    scheduler = scene.scheduler

    def run(name: str, tokens: Sequence[int], namespace: str = "") -> Any:
        request = scene.add(name, list(tokens))
        request.namespace = namespace
        scheduler.waiting.remove(request)
        Scheduler.start(scheduler, request)
        request.num_computed_tokens = len(request.token_ids)
        return request

    for number, (tokens, namespace) in enumerate(case.cached):
        Scheduler.finish(scheduler, run(f"earlier{number}", tokens, namespace), "stop")
    if case.other:
        run("other", case.other)
    scheduler.enable_prefix_caching = case.caching
    prompt = case.tokens[: len(case.tokens) - case.generated]
    request = scene.add("a", prompt)
    request.namespace = case.namespace
    request.token_ids = list(case.tokens)
    request.metrics.num_preemptions = int(case.generated > 0)
    return scene, request


def blocks(tokens: Sequence[int]) -> int:
    return -(-len(tokens) // SIZE)


def expected(case: Case, scene: Simulation, request: Any) -> Changes:
    """What `start` has to change: nothing if there is no room."""
    cache = PrefixOracle(SIZE)
    for tokens, space in case.cached:
        cache.insert(tokens, range(len(tokens)), space)
    held = set(cache.value)
    mine = set(cache.held(case.tokens[:-1], case.namespace)) if case.caching else set()
    theirs = set(cache.held(case.other[:-1]))
    free = case.num_blocks - len(held) - (blocks(case.other) - len(theirs))
    missing = blocks(case.tokens) - len(mine)
    evicted = max(0, missing - free)
    if evicted > len(held - mine - theirs):
        return {}
    found = f"The cache holds {len(mine) * SIZE} of its tokens in whole blocks."
    room = f"It shares {len(mine)} blocks and needs {missing} more."
    table = len(mine) + missing
    waits = names(scene.scheduler.running)
    changes = {
        "num_computed_tokens": (len(mine) * SIZE, found),
        "the number of blocks in its table": (table, room),
        "kv.lengths of the request": (len(case.tokens), "All its tokens have a slot."),
        "the list of running requests": ([*waits, "a"], "It runs now."),
        "whether request.node is a node": (True, "Its prefix ends there; it is what was locked."),
        "the number of locked blocks": (len(mine | theirs), "A shared prefix is locked."),
        "the number of cached blocks": (len(held) - evicted, room),
        "the number of free blocks": (free + evicted - missing, room),
        "its status": ("running", "It runs now."),
    }
    if case.generated == 0:
        changes["metrics.num_cached_tokens"] = (len(mine) * SIZE, found)
    return changes


draw = pictures.draw_admission
