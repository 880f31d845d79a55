"""The check of thread_blocks_per_sm."""

from __future__ import annotations

import random
from typing import Any

from yaie.course.core.expect import equal, fail, given, raises

KIB = 1024
NO_SHARED = "A thread block may take no shared memory at all; then that is no limit."


def check_thread_blocks(thread_blocks_per_sm: Any) -> None:
    one_limit_at_a_time(thread_blocks_per_sm)
    what_cannot_be_launched(thread_blocks_per_sm)
    what_makes_no_sense(thread_blocks_per_sm)
    at_random(thread_blocks_per_sm)


def one_limit_at_a_time(thread_blocks_per_sm: Any) -> None:
    up = "A part of a thread block is never resident: round down."
    cases = [
        ((256, 16, 0), "2048 threads are 8 times 256.", [(16, "There are only 2048 threads.")]),
        ((384, 16, 0), "5 × 384 threads fit into 2048, 6 do not.", [(6, up)]),
        (
            (32, 32, 0),
            "There are places for 32 thread blocks, however small.",
            [(64, "2048 threads would be enough for 64, but there are only 32 places.")],
        ),
        (
            (100, 16, 0),
            "100 threads occupy 4 whole warps, as 128 do: 2048 / 128.",
            [(20, "100 threads occupy 4 warps of 32, as 128 do. Count whole warps.")],
        ),
        (
            (256, 64, 0),
            "256 threads × 64 registers are a quarter of the 65536.",
            [
                (8, "The registers run out first: each thread has 64, and there are 65536."),
                (128, "registers are those of one thread: a thread block has 256 times as many."),
                (32, "registers are those of one thread: a thread block has 256 times as many."),
            ],
        ),
        (
            (256, 33, 0),
            "A warp takes 32 × 33 = 1056 registers, rounded up to 1280; so 4 × 12 warps of 8.",
            [
                (7, "Registers are handed out to a warp in multiples of 256: 32 × 33 = 1056 "
                    "become 1280."),
                (8, "The registers run out before the threads do."),
            ],
        ),
        (
            (32, 80, 0),
            "A warp takes 2560 registers; each of the 4 partitions has 16384, room for 6 warps.",
            [
                (25, "All 65536 registers together would do for 25 warps, but they lie in 4 "
                     "partitions of 16384, and a warp's registers lie in one: 6 in each."),
                (32, "The registers run out before the places do."),
            ],
        ),
        (
            (128, 32, 50 * KIB),
            "Each thread block takes 51 KiB of the 228.",
            [
                (16, "The shared memory runs out first: 228 KiB for all thread blocks."),
                (5, up),
            ],
        ),
        (
            (128, 32, 57 * KIB),
            "With the 1 KiB that CUDA reserves in each, a thread block takes 58 KiB: 3 in 228.",
            [(4, "CUDA reserves `sm.reserved_shared` bytes in each thread block, beside yours.")],
        ),
        (
            (1024, 64, 100 * KIB),
            "The registers are all taken by one thread block.",
            [(2, "Threads and shared memory are enough for 2, but the registers only for 1: the "
                 "scarcest resource decides.")],
        ),
    ]  # fmt: skip
    for arguments, because, mistakes in cases:
        ask(thread_blocks_per_sm, arguments, because=because, mistakes=mistakes)
    ask(
        thread_blocks_per_sm,
        (256, 16, 0),
        "8.6",
        because="A multiprocessor of capability 8.6 has 1536 threads.",
        mistakes=[(8, "That is for `sm=HOPPER`, the default: use the argument.")],
    )


def what_cannot_be_launched(thread_blocks_per_sm: Any) -> None:
    refused = "Such a launch is refused by CUDA, so none is resident."
    for arguments, because in (
        ((1025, 16, 0), f"A thread block has at most 1024 threads. {refused}"),
        ((32, 256, 0), f"A thread has at most 255 registers. {refused}"),
        ((32, 32, 227 * KIB + 1), f"A thread block has at most 227 KiB. {refused}"),
        ((1024, 65, 0), "32 warps of 2304 registers each are more than there are."),
    ):
        ask(thread_blocks_per_sm, arguments, because=because)


def what_makes_no_sense(thread_blocks_per_sm: Any) -> None:
    for arguments in ((0, 32, 0), (32, 0, 0), (32, 32, -1)):
        raises(
            ValueError,
            lambda a=arguments: thread_blocks_per_sm(*a),
            f"thread_blocks_per_sm{arguments}",
            because="It is no number that a kernel can have.",
        )


def at_random(thread_blocks_per_sm: Any) -> None:
    from yaie.course.lessons.roofline import MULTIPROCESSORS

    rng = random.Random(0)
    for number in range(300):
        capability = list(MULTIPROCESSORS)[number % len(MULTIPROCESSORS)]
        most = MULTIPROCESSORS[capability].shared_per_block
        threads = rng.choice([rng.randint(1, 1024), 32 * rng.randint(1, 32)])
        registers = rng.randint(16, 255)
        shared = rng.choice([0, rng.randint(0, most // 8), rng.randint(0, most)])
        ask(
            thread_blocks_per_sm,
            (threads, registers, shared),
            capability,
            because="So many fit when they are placed one after another.",
        )


def place_one_by_one(threads: int, registers: int, shared_bytes: int, sm: Any) -> int:
    """Thread blocks that a simulated multiprocessor takes until one does not fit."""
    if threads > sm.threads_per_block or shared_bytes > sm.shared_per_block:
        return 0
    if registers > sm.registers_per_thread:
        return 0
    free_warps, free_shared = sm.threads // 32, sm.shared_bytes
    partitions = [sm.registers // sm.partitions] * sm.partitions
    of_a_warp = 0
    while of_a_warp < 32 * registers:
        of_a_warp += sm.register_unit
    of_a_block = 0
    while of_a_block < shared_bytes + sm.reserved_shared:
        of_a_block += sm.shared_unit
    placed = 0
    while placed < sm.thread_blocks:
        free_shared -= of_a_block
        for _ in range(0, threads, 32):
            free_warps -= 1
            emptiest = partitions.index(max(partitions))
            partitions[emptiest] -= of_a_warp
        if free_shared < 0 or free_warps < 0 or min(partitions) < 0:
            break
        placed += 1
    return placed


def ask(
    function: Any,
    arguments: tuple[int, int, int],
    capability: str = "9.0",
    because: str = "",
    mistakes: list[tuple[int, str]] | None = None,
) -> None:
    from yaie.course.lessons.roofline import MULTIPROCESSORS

    sm = MULTIPROCESSORS[capability]
    threads, registers, shared = arguments
    where = "" if capability == "9.0" else f" on a multiprocessor of capability {capability}"
    call = f"thread_blocks_per_sm(threads={threads}, registers={registers}, shared_bytes={shared})"
    with given(call + where, errors={ZeroDivisionError: NO_SHARED}):
        got = function(*arguments) if capability == "9.0" else function(*arguments, sm)
    want = place_one_by_one(*arguments, sm)
    if isinstance(got, float):
        fail(
            f"{call}{where} is {got}, expected {want}, an int. Thread blocks are whole: use "
            "integer division, `//`."
        )
    equal(got, want, call + where, because, mistakes or [])


def draw_thread_blocks(thread_blocks_per_sm: Any) -> Any:
    """Resident warps of thread blocks of 256 threads, as each of them takes more."""
    from yaie.course.viz.occupancy import draw_occupancy

    def warps(registers: int, shared: int) -> int:
        return 8 * thread_blocks_per_sm(256, registers, shared)

    by_registers = [(r, warps(r, 0)) for r in range(16, 256)]
    by_shared = [(k, warps(32, k * KIB)) for k in range(228)]
    return draw_occupancy(
        {
            "registers a thread (thread blocks of 256 threads)": by_registers,
            "KiB of shared memory a thread block (of 256 threads)": by_shared,
        },
        most=64,
    )
