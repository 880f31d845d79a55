"""The check of requests_that_fit against the real scheduler, and its picture."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.core.expect import equal, given, true
from yaie.course.lessons.simulate import Simulation


def check_fit(requests_that_fit: Any) -> None:
    by_hand(requests_that_fit)
    rng = random.Random(0)
    for _ in range(25):
        against_the_scheduler(requests_that_fit, rng)
    for _ in range(40):
        against_a_count(requests_that_fit, rng)


def by_hand(requests_that_fit: Any) -> None:
    ask = asking(requests_that_fit)
    ask(
        (100, 16, 30, 10),
        33,
        "39 tokens have keys and values, in 3 blocks; 100 // 3 is 33.",
        [
            (40, "Tokens are counted, not blocks: a block that is begun is taken whole."),
            (41, "Tokens are counted, not blocks: a block that is begun is taken whole."),
            (50, "Only the prompt is counted. The answer's tokens are stored, too."),
            (34, "It is rounded up. The last of them would not fit."),
            (100 / 3, "Whole requests, please: round down."),
        ],
    )
    ask(
        (60, 16, 40, 9),
        20,
        "48 tokens have keys and values: 3 blocks. The answer's last token is never computed with.",
        [(15, "That counts 49 tokens: the last token of an answer has no keys and values.")],
    )
    ask(
        (60, 16, 40, 10),
        15,
        "49 tokens have keys and values: 4 blocks.",
        [(20, "That counts 48 tokens: the prompt, and all of the answer but its last token.")],
    )
    ask(
        (100, 16, 70, 11, 40),
        32,
        "5 blocks hold 80 tokens. Of the 40 shared ones 2 whole blocks are shared: 98 // 3 is 32.",
        [
            (20, "Nothing is shared: `shared` is left out."),
            (33, "The shared blocks lie in the pool, too: once."),
            (48, "A block that is shared in part is not shared: round down."),
            (49, "A block that is shared in part is not shared: round down."),
            (30, "The shared blocks are stored once for all, and not once for each."),
        ],
    )
    ask(
        (100, 16, 64, 17, 64),
        48,
        "The prompt's last token must be computed by everyone, so its block is never shared: 3 "
        "blocks are, and 97 // 2 is 48.",
        [(96, "That shares all 4 blocks of the prompt. Who would compute its last token?")],
    )
    ask((2, 16, 30, 10), 0, "One request needs 3 blocks.", [(1, "Not even one fits.")])
    ask((1, 16, 70, 11, 64), 0, "The shared blocks alone do not fit.", [(-3, "Less than none.")])
    ask((10, 16, 1, 1), 10, "One token is stored, and it takes a block.", [])


def asking(requests_that_fit: Any) -> Any:
    names = ("num_blocks", "block_size", "prompt", "output", "shared")

    def ask(arguments: tuple, want: int, because: str, mistakes: list) -> None:
        what = ", ".join(f"{n}={a}" for n, a in zip(names, arguments, strict=False))
        what = f"requests_that_fit({what})"
        errors = {ZeroDivisionError: "No request needs 0 blocks: one token is always its own."}
        with given(what, errors=errors):
            got = requests_that_fit(*arguments)
        equal(got, want, what, because=because, mistakes=mistakes)

    return ask


def against_a_count(requests_that_fit: Any, rng: random.Random) -> None:
    """Blocks counted one by one, for any size."""
    block_size = rng.choice([1, 4, 16])
    prompt, output = rng.randint(1, 90), rng.randint(1, 60)
    shared, num_blocks = rng.randint(0, prompt), rng.randint(1, 400)
    stored = range(prompt + output - 1)
    blocks = {token // block_size for token in stored}
    common = {
        block
        for block in blocks
        if (block + 1) * block_size <= shared and (block + 1) * block_size <= prompt - 1
    }
    free, want = num_blocks - len(common), 0
    while free >= len(blocks - common):
        free -= len(blocks - common)
        want += 1
    asking(requests_that_fit)(
        (num_blocks, block_size, prompt, output, shared), want, "Counted block by block.", []
    )


def against_the_scheduler(requests_that_fit: Any, rng: random.Random) -> None:
    """So many run to their ends, all at once; of one more, somebody waits or is preempted."""
    prompt, output = rng.randint(2, 40), rng.randint(1, 12)
    shared = rng.choice([0, rng.randint(0, prompt)])
    num_blocks = rng.randint(20, 60)
    what = (
        f"requests_that_fit(num_blocks={num_blocks}, block_size=4, prompt={prompt}, "
        f"output={output}, shared={shared})"
    )
    with given(what):
        count = requests_that_fit(num_blocks, 4, prompt, output, shared)
    if not 1 <= count <= 60:
        return
    for number, fits in ((count, True), (count + 1, False)):
        smooth = run_smoothly(num_blocks, prompt, output, shared, number)
        said = "all run at once to their ends" if fits else "that is one too many"
        true(
            smooth == fits,
            f"{what} is {count}, so of {number} requests {said}. In the real scheduler they "
            + ("do not." if fits else "all run at once to their ends, too."),
        )


def run_smoothly(num_blocks: int, prompt: int, output: int, shared: int, count: int) -> bool:
    """Whether so many requests run side by side, in the scheduler, without a preemption."""
    from yaie.engine.scheduler import Scheduler

    scene = Simulation(
        Scheduler, num_blocks=num_blocks, max_num_seqs=200, max_num_batched_tokens=20_000
    )
    head = list(range(shared))
    if shared:  # somebody has asked before, so that the prefix is in the cache
        first = scene.add("first", [*head, 99_999])
        scene.scheduler.advance(scene.scheduler.schedule())
        scene.scheduler.finish(first, "stop")
    names = [f"r{number}" for number in range(count)]
    for name in names:
        own = [scene.new_token() for _ in range(prompt - shared)]
        scene.add(name, head + own)
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


def draw_fit(requests_that_fit: Any) -> Any:
    from yaie.course.viz import Chart, draw_charts

    shared = range(0, 641, 16)
    curves = {
        f"answers of {output} tokens": [
            (s, requests_that_fit(1456, 16, 656, output, s)) for s in shared
        ]
        for output in (16, 64, 256)
    }
    return draw_charts(
        [
            Chart(
                "1,456 blocks of 16 tokens, prompts of 656 tokens",
                "tokens that all prompts begin with",
                "requests that fit",
                curves,
                log_y=True,
            )
        ]
    )
