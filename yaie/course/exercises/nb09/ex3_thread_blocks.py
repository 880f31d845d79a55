"""09.3: `thread_blocks_per_sm`, beside a multiprocessor that takes thread blocks one by one."""

import random
from collections.abc import Iterator
from typing import Any

from yaie.course import viz
from yaie.course.core.observe import Case, Observer
from yaie.course.lessons.roofline import MULTIPROCESSORS

KIB = 1024
ONE_BY_ONE = "That many fit when they are placed one after another."
REFUSED = "CUDA refuses such a launch, so none is resident."


def cases() -> Iterator[Case]:
    yield kernel(256, 16, 0, "2048 threads are 8 × 256.")
    yield kernel(384, 16, 0, "5 × 384 threads fit into 2048, 6 × 384 do not.")
    yield kernel(32, 32, 0, "There is room for 32 thread blocks, however small.")
    yield kernel(100, 16, 0, "100 threads occupy 4 whole warps, as 128 do: 2048 / 128.")
    yield kernel(256, 64, 0, "256 threads × 64 registers are a quarter of the 65536.")
    why = "A warp takes 32 × 33 = 1056 registers, rounded up to 1280: 4 × 12 warps, in blocks of 8."
    yield kernel(256, 33, 0, why)
    why = "A warp takes 2560 registers; each of the 4 partitions has 16384, room for 6 warps."
    yield kernel(32, 80, 0, why)
    yield kernel(128, 32, 56 * KIB, "Each thread block takes 57 KiB of the 228.")
    why = "With the 1 KiB that CUDA reserves in each, a thread block takes 58 KiB: 3 in 228."
    yield kernel(128, 32, 57 * KIB, why)
    why = "Each thread block takes 24917 + 1024 bytes, rounded up to 25984: 8 in 233472."
    yield kernel(128, 32, 24917, why)
    yield kernel(1024, 64, 100 * KIB, "The registers are all taken by one thread block.")
    yield kernel(256, 16, 0, "A multiprocessor of capability 8.6 has 1536 threads.", "8.6")
    yield kernel(256, 16, 0, "No shared memory is taken, so it limits nothing.", "7.5")
    yield kernel(1, 1, 0, "One thread occupies a whole warp; there is room for 32 thread blocks.")
    yield kernel(32, 255, 0, "255 registers are the most that a thread may have.")
    yield kernel(32, 32, 227 * KIB, "227 KiB are the most that a thread block may have.")
    yield kernel(1025, 16, 0, f"A thread block has at most 1024 threads. {REFUSED}")
    yield kernel(32, 256, 0, f"A thread has at most 255 registers. {REFUSED}")
    yield kernel(32, 32, 227 * KIB + 1, f"A thread block has at most 227 KiB. {REFUSED}")
    yield kernel(1024, 65, 0, "32 warps of 2304 registers each are more than there are.")
    for arguments in ((0, 32, 0), (32, 0, 0), (32, 32, -1)):
        yield kernel(*arguments, "No kernel can have such a number.")
    generator = random.Random(0)
    for number in range(300):
        capability = list(MULTIPROCESSORS)[number % len(MULTIPROCESSORS)]
        most = MULTIPROCESSORS[capability].shared_per_block
        threads = generator.choice([generator.randint(1, 1024), 32 * generator.randint(1, 32)])
        registers = generator.randint(16, 255)
        shared = generator.choice([0, generator.randint(0, most // 8), generator.randint(0, most)])
        yield kernel(threads, registers, shared, ONE_BY_ONE, capability)


def kernel(
    threads: int, registers: int, shared: int, because: str, capability: str = "9.0"
) -> Case:
    name = f"on a multiprocessor of capability {capability}"
    arguments = {"threads": threads, "registers": registers, "shared_bytes": shared}
    return Case(name, arguments=arguments, capability=capability, because=because)


def observe(thread_blocks_per_sm: Any, case: Case, see: Observer) -> None:
    sm = MULTIPROCESSORS[case.capability]
    values = list(case.arguments.values())
    shown = ", ".join(f"{name}={value}" for name, value in case.arguments.items())
    call = f"thread_blocks_per_sm({shown})"
    if min(values[:2]) < 1 or values[2] < 0:
        see.raises(call, ValueError, lambda: thread_blocks_per_sm(*values), case.because)
        return
    with see.call(call):
        got = thread_blocks_per_sm(*values, *([] if case.capability == "9.0" else [sm]))
    want = placed_one_by_one(*values, sm)
    if isinstance(got, float):
        see.note(call, got, f"is {got}, expected {want}, an int", "Thread blocks are whole.")
        return
    see.equal(call, got, want, case.because)


def placed_one_by_one(threads: int, registers: int, shared_bytes: int, sm: Any) -> int:
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


def draw(thread_blocks_per_sm: Any) -> Any:
    """Resident warps of thread blocks of 256 threads, as each of them takes more."""

    def warps(registers: int, shared: int) -> int:
        return 8 * thread_blocks_per_sm(256, registers, shared)

    by_registers = [(r, warps(r, 0)) for r in range(16, 256)]
    by_shared = [(k, warps(32, k * KIB)) for k in range(228)]
    panels = {
        "registers per thread (thread blocks of 256 threads)": by_registers,
        "KiB of shared memory per thread block (of 256 threads)": by_shared,
    }
    charts = [
        viz.Chart("resident warps, of 64", words, "", {"": points}, steps=True)
        for words, points in panels.items()
    ]
    return viz.draw_charts(charts)
