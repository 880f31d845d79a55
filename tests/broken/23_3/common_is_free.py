"""Forgets that shared blocks lie in the pool."""

from yaie.engine.kv_cache import blocks_needed

EXPECT = "The shared blocks lie in the pool, too"


def requests_that_fit(num_blocks, block_size, prompt, output, shared=0):
    common = min(shared, prompt - 1) // block_size
    own = blocks_needed(prompt + output - 1, block_size) - common
    return max(0, num_blocks // own)
