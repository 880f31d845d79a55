"""Exercise 28.3: How many requests the memory holds.

Before you start a server, compute how many requests of a known size its KV blocks hold to their
ends. Some tokens of the prompt may be the same for all requests, and are then stored once.

You have
- `num_blocks`, `block_size`: the blocks of the pool; tokens per block
- `prompt`, `output`: tokens of each request; the last token of an answer is never stored
- `shared`: how many of the prompt's first tokens are the same for all requests
- `blocks_needed(num_tokens, block_size)`: returns an int, rounded up

In a terminal: yaie check 28.3, yaie hint 28.3, yaie reset 28.3.
"""

from __future__ import annotations

from yaie.engine.kv_cache import blocks_needed


def requests_that_fit(
    num_blocks: int, block_size: int, prompt: int, output: int, shared: int = 0
) -> int:
    """How many requests can run to their ends together; with one more, some wait or are preempted.

    Each has `prompt` tokens and generates `output` more. Of the last one no key and value are
    ever stored: it ends the answer before the model sees it. The first `shared` tokens of all
    prompts are the same and in the prefix cache; of them, whole blocks are stored once for all
    requests, and never the block of a prompt's last token, which each request computes itself.

    Args:
        num_blocks, block_size: the pool; `block_size` in tokens.
        prompt, output: tokens of each request, at least 1.
        shared: at most `prompt`.

    Returns:
        How many requests; 0 if the pool is too small for one, or for the shared tokens.
    """
    raise NotImplementedError("Exercise 28.3: How many requests the memory holds")
