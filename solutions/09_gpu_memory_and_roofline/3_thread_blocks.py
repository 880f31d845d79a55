"""Solution of exercise 09.3: Thread blocks on a multiprocessor.

A kernel is launched with a number of threads per thread block, of registers per thread, and of
bytes of shared memory per thread block. Say how many thread blocks an SM holds together: the
scarcest of four resources decides. The docstring has the rules of allocation.

Generated from thread_blocks_per_sm in yaie/course/lessons/roofline.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.course.lessons.roofline import HOPPER, WARP, Multiprocessor, round_up


def thread_blocks_per_sm(
    threads: int, registers: int, shared_bytes: int, sm: Multiprocessor = HOPPER
) -> int:
    """How many thread blocks of a kernel are resident on an SM together.

    A thread block is resident as a whole or not at all. Four things may run out:

    - threads, of which a thread block takes whole warps of 32;
    - places for thread blocks;
    - registers: a warp takes 32 times those of a thread, rounded up to a multiple of
      `sm.register_unit`, from one of the `sm.partitions` equal parts of `sm.registers`; the warps
      of a thread block may lie in any parts;
    - shared memory: a thread block takes `shared_bytes` and `sm.reserved_shared`, together rounded
      up to a multiple of `sm.shared_unit`.

    Args:
        threads: of a thread block.
        registers: of a thread.
        shared_bytes: of a thread block, as the kernel declares or is launched with.
        sm: what the multiprocessor has; by default that of an H100 or H200.

    Returns:
        The number; 0 if a thread block asks for more than `sm` allows one, and cannot be launched.

    Raises:
        ValueError: threads or registers below 1, or shared_bytes below 0.
    """
    if threads < 1 or registers < 1 or shared_bytes < 0:
        raise ValueError(
            "threads and registers must be at least 1 and shared_bytes at least 0, "
            f"got {threads}, {registers} and {shared_bytes}"
        )
    if (
        threads > sm.threads_per_block
        or registers > sm.registers_per_thread
        or shared_bytes > sm.shared_per_block
    ):
        return 0
    warps = -(-threads // WARP)
    registers_per_warp = round_up(WARP * registers, sm.register_unit)
    warps_with_registers = sm.partitions * (sm.registers // sm.partitions // registers_per_warp)
    shared_per_block = round_up(shared_bytes + sm.reserved_shared, sm.shared_unit)
    return min(
        sm.threads // (WARP * warps),
        sm.thread_blocks,
        warps_with_registers // warps,
        sm.shared_bytes // max(shared_per_block, 1),
    )
