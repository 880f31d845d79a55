"""Kernels that go over the same bytes again and again: a cache's rate, without launches."""

import triton
import triton.language as tl


@triton.jit
def read_kernel(x_ptr, out_ptr, num_blocks, rounds, BLOCK: tl.constexpr):
    """out[p] = the sum of the blocks that program p reads; all programs read x `rounds` times.

    Each program takes every num_programs-th block. Loads bypass L1 (".cg"), the cache of one SM.
    """
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(tl.program_id(0), num_blocks * rounds, tl.num_programs(0)):
        block = (step % num_blocks).to(tl.int64)
        total += tl.load(x_ptr + block * BLOCK + offsets, cache_modifier=".cg")
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))


@triton.jit
def copy_kernel(x_ptr, out_ptr, num_blocks, rounds, BLOCK: tl.constexpr):
    """out = x, `rounds` times; the blocks are shared out as in `read_kernel`."""
    offsets = tl.arange(0, BLOCK)
    for step in range(tl.program_id(0), num_blocks * rounds, tl.num_programs(0)):
        place = (step % num_blocks).to(tl.int64) * BLOCK + offsets
        tl.store(out_ptr + place, tl.load(x_ptr + place, cache_modifier=".cg"))
