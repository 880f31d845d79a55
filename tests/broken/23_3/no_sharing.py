"""Shares nothing."""

from yaie.engine.kv_cache import blocks_needed

EXPECT = "Nothing is shared"


def requests_that_fit(num_blocks, block_size, prompt, output, shared=0):
    common = 0
    own = blocks_needed(prompt + output - 1, block_size) - common
    return max(0, (num_blocks - common) // own)
