"""06.2: a waiting request that gets blocks, or has to wait on as if nothing had been tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from yaie.course.core.observe import Case, Observer
from yaie.course.exercises.nb06 import pictures
from yaie.course.exercises.nb06.scene import Changes, compare, end_all, names, state
from yaie.course.lessons.simulate import Simulation
from yaie.engine.scheduler import Scheduler

SIZE = 4  # tokens per block


@dataclass(frozen=True)
class Setting:
    """What there is when the request is started.

    Attributes:
        num_blocks: of the pool.
        cached: token ids that earlier requests computed, and their namespace.
        other: the tokens of another request, which runs.
        tokens: those of the request; the last `generated` of them are its output so far, and
            then it was preempted once.
    """

    num_blocks: int
    tokens: Sequence[int]
    cached: Sequence[tuple[Sequence[int], str]] = ()
    other: Sequence[int] = ()
    generated: int = 0
    namespace: str = ""
    caching: bool = True


def cases() -> Iterator[Case]:
    yield case("10 tokens, 4 free blocks", Setting(4, range(50, 60)))
    eight = ((range(8), ""),)
    longer = [*range(8), 90, 91]
    yield case("10 tokens, 8 of them cached", Setting(6, longer, eight))
    yield case("10 tokens, 8 of them cached, 1 free block", Setting(3, longer, eight))
    yield case("20 tokens, 12 of them in the only blocks that could be evicted, 1 free block",
               Setting(4, [*range(12), *range(50, 58)], ((range(12), ""),)))  # fmt: skip
    yield case("8 tokens, 1 free block, and 2 cached ones that another request has locked",
               Setting(4, range(50, 58), eight, [*range(8), 70]))  # fmt: skip
    yield case("24 tokens, 4 of them cached, in a pool of 4 blocks",
               Setting(4, [*range(4), *range(30, 50)], ((range(4), ""),)))  # fmt: skip
    yield case("10 tokens, 1 free block, and 4 cached ones of other prompts",
               Setting(5, range(50, 60), (*eight, (range(20, 28), ""))))  # fmt: skip
    yield case("9 tokens, 8 of them cached, and enable_prefix_caching=False",
               Setting(6, [*range(8), 90], eight, caching=False))  # fmt: skip
    adapted = ((range(8), "adapter"),)
    yield case("10 tokens, 8 of them cached in another namespace", Setting(6, longer, adapted))
    yield case("10 tokens, 8 of them cached in its namespace 'adapter'",
               Setting(6, longer, adapted, namespace="adapter"))  # fmt: skip
    yield case("a prompt of 4 tokens and 5 generated ones, 2 free blocks",
               Setting(2, range(9), generated=5))  # fmt: skip
    yield case("a prompt of 4 tokens and 5 generated ones, 4 free blocks",
               Setting(4, range(9), generated=5))  # fmt: skip
    yield case("a prompt of 8 tokens and 2 generated ones, preempted before; 8 tokens are cached",
               Setting(6, longer, eight, generated=2))  # fmt: skip


def case(name: str, setting: Setting) -> Case:
    return Case(name, setting=setting)


def observe(scheduler_class: type, case: Case, see: Observer) -> None:
    scene, request = set_up(scheduler_class, case.setting)
    changes = expected(case.setting, scene, request)
    before = state(scene, request)
    with see.call("start(a)"):
        got = scene.scheduler.start(request)
    fits = bool(changes)
    needed = f"{len(request.token_ids)} tokens need {blocks(request.token_ids)} blocks."
    see.equal("the return value of start(a)", got, fits, needed)
    compare(see, scene, request, "start(a)", before, changes)
    end_all(see, scene)


def set_up(scheduler_class: type, setting: Setting) -> tuple[Simulation, Any]:
    """The scene, by the reference's rules, and the request that waits."""
    scene = Simulation(scheduler_class, num_blocks=setting.num_blocks)
    scheduler = scene.scheduler

    def run(name: str, tokens: Sequence[int], namespace: str = "") -> Any:
        request = scene.add(name, list(tokens))
        request.namespace = namespace
        scheduler.waiting.remove(request)
        Scheduler.start(scheduler, request)
        request.num_computed_tokens = len(request.token_ids)
        return request

    for number, (tokens, namespace) in enumerate(setting.cached):
        Scheduler.finish(scheduler, run(f"earlier{number}", tokens, namespace), "stop")
    if setting.other:
        run("other", setting.other)
    scheduler.enable_prefix_caching = setting.caching
    prompt = list(setting.tokens)[: len(setting.tokens) - setting.generated]
    request = scene.add("a", prompt)
    request.namespace = setting.namespace
    request.token_ids = list(setting.tokens)
    request.metrics.num_preemptions = int(setting.generated > 0)
    return scene, request


def blocks(tokens: Sequence[int]) -> int:
    return -(-len(tokens) // SIZE)


def expected(setting: Setting, scene: Simulation, request: Any) -> Changes:
    """What `start` has to change: nothing if there is no room."""
    held = {(space, tuple(tokens[:end])) for tokens, space in setting.cached
            for end in range(SIZE, len(tokens) + 1, SIZE)}  # fmt: skip

    def matched(tokens: Sequence[int], namespace: str = "") -> set:
        found = [(namespace, tuple(tokens[:end])) for end in range(SIZE, len(tokens), SIZE)]
        return {key for key in found if key in held}

    mine = matched(setting.tokens, setting.namespace) if setting.caching else set()
    theirs = matched(setting.other)
    free = setting.num_blocks - len(held) - (blocks(setting.other) - len(theirs))
    missing = blocks(setting.tokens) - len(mine)
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
        "kv.lengths of the request": (len(setting.tokens), "All its tokens have a slot."),
        "the list of running requests": ([*waits, "a"], "It runs now."),
        "whether request.node is a node": (True, "Its prefix ends there; it is what was locked."),
        "the number of locked blocks": (len(mine | theirs), "A shared prefix is locked."),
        "the number of cached blocks": (len(held) - evicted, room),
        "the number of free blocks": (free + evicted - missing, room),
        "its status": ("running", "It runs now."),
    }
    if setting.generated == 0:
        changes["metrics.num_cached_tokens"] = (len(mine) * SIZE, found)
    return changes


draw = pictures.draw_admission
