"""Shares the block of the prompt's last token."""

from yaie.engine.kv_cache import blocks_needed

EXPECT = "Who would compute its last token"


def requests_that_fit(num_blocks, block_size, prompt, output, shared=0):
    common = min(shared, prompt) // block_size
    own = blocks_needed(prompt + output - 1, block_size) - common
    return max(0, (num_blocks - common) // own)
