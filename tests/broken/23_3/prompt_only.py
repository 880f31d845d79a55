"""Counts the prompt alone."""

from yaie.engine.kv_cache import blocks_needed

EXPECT = "Only the prompt is counted"


def requests_that_fit(num_blocks, block_size, prompt, output, shared=0):
    common = min(shared, prompt - 1) // block_size
    own = blocks_needed(prompt, block_size) - common
    return max(0, (num_blocks - common) // own)
