"""Ignores shared memory."""

from yaie.course.lessons.roofline import HOPPER, WARP, round_up

EXPECT = "The shared memory runs out first"


def thread_blocks_per_sm(threads, registers, shared_bytes, sm=HOPPER):
    if threads < 1 or registers < 1 or shared_bytes < 0:
        raise ValueError(f"got {threads}, {registers} and {shared_bytes}")
    if threads > sm.threads_per_block or registers > sm.registers_per_thread:
        return 0
    if shared_bytes > sm.shared_per_block:
        return 0
    warps = -(-threads // WARP)
    registers_a_warp = round_up(WARP * registers, sm.register_unit)
    warps_with_registers = sm.partitions * (sm.registers // sm.partitions // registers_a_warp)
    return min(
        sm.threads // (WARP * warps),
        sm.thread_blocks,
        warps_with_registers // warps,
    )
