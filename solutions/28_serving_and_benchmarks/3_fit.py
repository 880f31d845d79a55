"""Solution of exercise 28.3: How many requests the memory holds.

Before you start a server, compute how many requests of a known size its KV blocks hold to their
ends. Some tokens of the prompt may be the same for all requests, and are then stored once.

Generated from requests_that_fit in yaie/bench/load.py.
Edit it there, and run `python -m yaie.course build`.
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
    common = min(shared, prompt - 1) // block_size
    own = blocks_needed(prompt + output - 1, block_size) - common
    return max(0, (num_blocks - common) // own)
