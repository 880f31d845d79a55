"""Rounds the number of requests up."""

from yaie.engine.kv_cache import blocks_needed

EXPECT = "It is rounded up"


def requests_that_fit(num_blocks, block_size, prompt, output, shared=0):
    common = min(shared, prompt - 1) // block_size
    own = blocks_needed(prompt + output - 1, block_size) - common
    return max(0, -(-(num_blocks - common) // own))
