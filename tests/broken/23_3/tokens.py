"""Counts tokens, not blocks."""

EXPECT = "Tokens are counted, not blocks"


def requests_that_fit(num_blocks, block_size, prompt, output, shared=0):
    return num_blocks * block_size // (prompt + output)
