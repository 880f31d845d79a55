"""28.3: how many requests the KV blocks hold to their ends, found by the real scheduler."""

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.simulate import Simulation
from yaie.engine.scheduler import Scheduler

NAMES = ("num_blocks", "block_size", "prompt", "output", "shared")
PLANNED = (
    (100, 16, 30, 20),
    (100, 16, 30, 10),
    (60, 16, 40, 9),
    (60, 16, 40, 10),
    (101, 16, 70, 15, 40),
    (100, 16, 64, 17, 64),
    (2, 16, 30, 10),
    (1, 16, 70, 11, 64),
    (10, 16, 1, 1),
)


def cases() -> Iterator[Case]:
    for size in PLANNED:
        yield Case("", size=size, by_scheduler=False)
    rng = random.Random(0)
    for _ in range(25):
        prompt, output = rng.randint(2, 40), rng.randint(1, 12)
        shared = rng.choice([0, rng.randint(0, prompt)])
        yield Case("", size=(rng.randint(20, 60), 4, prompt, output, shared), by_scheduler=True)
    for _ in range(40):
        block_size = rng.choice([1, 4, 16])
        prompt, output = rng.randint(1, 90), rng.randint(1, 60)
        shared, num_blocks = rng.randint(0, prompt), rng.randint(1, 400)
        size = num_blocks, block_size, prompt, output, shared
        yield Case("", size=size, by_scheduler=False)


def observe(requests_that_fit: Any, case: Case, see: Observer) -> None:
    given = ", ".join(f"{n}={value}" for n, value in zip(NAMES, case.size, strict=False))
    call = f"requests_that_fit({given})"
    with see.call(call):
        got = requests_that_fit(*case.size)
    own, common, want = counted(*case.size)
    because = (
        f"Each request stores {case.size[2] + case.size[3] - 1} tokens in {own + common} blocks"
    )
    because += f", {common} of them common to all." if common else "."
    if case.by_scheduler:
        want = most_that_run(want, *case.size)
        because = f"In the real scheduler {want} run to their ends without a preemption. {because}"
    see.equal(call, got, want, because)


def counted(
    num_blocks: int, block_size: int, prompt: int, output: int, shared: int = 0
) -> tuple[int, int, int]:
    """Blocks of a request alone, blocks common to all, and requests that fit: one by one."""
    blocks = {token // block_size for token in range(prompt + output - 1)}
    most = min(shared, prompt - 1)
    common = {block for block in blocks if (block + 1) * block_size <= most}
    free, count = num_blocks - len(common), 0
    while free >= len(blocks - common):
        free -= len(blocks - common)
        count += 1
    return len(blocks - common), len(common), count


@lru_cache(maxsize=64)
def most_that_run(
    guess: int, num_blocks: int, block_size: int, prompt: int, output: int, shared: int
) -> int:
    """How many run to their ends, all together; of one more, a request waits or is preempted."""
    while run_smoothly(num_blocks, block_size, prompt, output, shared, guess + 1):
        guess += 1
    while guess and not run_smoothly(num_blocks, block_size, prompt, output, shared, guess):
        guess -= 1
    return guess


def run_smoothly(
    num_blocks: int, block_size: int, prompt: int, output: int, shared: int, count: int
) -> bool:
    """Whether `count` requests run side by side, in the scheduler, without a preemption."""
    scene = Simulation(
        Scheduler,
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_seqs=200,
        max_num_batched_tokens=20_000,
    )
    head = list(range(shared))
    if shared:  # an earlier request has left the prefix in the cache
        first = scene.add("first", [*head, 99_999])
        scene.scheduler.advance(scene.scheduler.schedule())
        scene.scheduler.finish(first, "stop")
    for number in range(count):
        own = [scene.new_token() for _ in range(prompt - shared)]
        scene.add(f"r{number}", head + own)
    step = scene.scheduler.schedule()
    if len(step.scheduled) < count:
        return False
    for _ in range(output - 1):
        scene.scheduler.advance(step)
        for request in scene.scheduler.running:
            request.token_ids.append(scene.new_token())
        step = scene.scheduler.schedule()
        if step.preempted:
            return False
    return True


def draw(requests_that_fit: Any) -> Any:
    shared = range(0, 641, 16)
    curves = {
        f"answers of {output} tokens": [
            (s, requests_that_fit(1456, 16, 656, output, s)) for s in shared
        ]
        for output in (16, 64, 256)
    }
    return viz.draw_charts(
        [
            viz.Chart(
                "1,456 blocks of 16 tokens, prompts of 656 tokens",
                "tokens that all prompts begin with",
                "requests that fit",
                curves,
                log_y=True,
            )
        ]
    )
