"""Ignores the registers."""

from yaie.course.lessons.roofline import HOPPER, WARP, round_up

EXPECT = "The registers run out first"


def thread_blocks_per_sm(threads, registers, shared_bytes, sm=HOPPER):
    if threads < 1 or registers < 1 or shared_bytes < 0:
        raise ValueError(f"got {threads}, {registers} and {shared_bytes}")
    if threads > sm.threads_per_block or registers > sm.registers_per_thread:
        return 0
    if shared_bytes > sm.shared_per_block:
        return 0
    warps = -(-threads // WARP)
    shared_a_block = round_up(shared_bytes + sm.reserved_shared, sm.shared_unit)
    return min(
        sm.threads // (WARP * warps),
        sm.thread_blocks,
        sm.shared_bytes // max(shared_a_block, 1),
    )
