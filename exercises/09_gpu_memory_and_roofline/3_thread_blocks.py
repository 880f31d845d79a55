"""Exercise 09.3: Thread blocks on a multiprocessor.

A kernel is launched with a number of threads per thread block, of registers per thread, and of
bytes of shared memory per thread block. Say how many thread blocks an SM holds together: the
scarcest of four resources decides. The docstring has the rules of allocation.

You have
- `WARP`, `round_up(number, unit)`: 32; the least multiple of `unit` that is at least `number`
- `sm.threads`, `sm.thread_blocks`: the most that are resident together
- `sm.registers`, `sm.partitions`, `sm.register_unit`: registers of the SM; parts of equal size,
  each warp is in one; a warp's registers are a multiple of this
- `sm.shared_bytes`, `sm.reserved_shared`, `sm.shared_unit`: shared memory of the SM; what CUDA
  takes of it per thread block, 0 before capability 8.0; a thread block's share is a multiple of
  this
- `sm.threads_per_block`, `sm.registers_per_thread`, `sm.shared_per_block`: the most that a thread
  block or a thread may have

In a terminal: yaie check 09.3, yaie hint 09.3, yaie reset 09.3.
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
    raise NotImplementedError("Exercise 09.3: Thread blocks on a multiprocessor")
